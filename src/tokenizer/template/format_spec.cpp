#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

constexpr int most_digits = 1 << 20;

struct Specification {
  std::string fill = " ";
  char align = 0;
  char sign = 0;
  bool no_negative_zero = false;
  bool alternate = false;
  size_t width = 0;
  char grouping = 0;
  std::optional<int> precision;
  char type = 0;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

int read_number(std::string_view text, size_t& at) {
  int number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > most_digits) raise(FaultKind::limit, "a number in the format specification '{}' is too big", text);
  }
  return number;
}

Specification parse(std::string_view text, const Value& value, char default_align) {
  Specification spec;
  size_t at = 0;
  const auto next = [&] { return at < text.size() ? text[at] : '\0'; };
  size_t after_first = 0;
  if (!text.empty()) next_code_point(text, after_first);
  bool fill_given = false;
  if (after_first != 0 && after_first < text.size() && is_align(text[after_first])) {
    spec.fill = text.substr(0, after_first);
    spec.align = text[after_first];
    at = after_first + 1;
    fill_given = true;
  } else if (is_align(next())) {
    spec.align = text[at++];
  }
  if (next() == '+' || next() == '-' || next() == ' ') spec.sign = text[at++];
  if (next() == 'z') spec.no_negative_zero = ++at != 0;
  if (next() == '#') spec.alternate = ++at != 0;
  if (!fill_given && next() == '0') {
    spec.fill.assign(1, '0');
    if (spec.align == 0 && default_align == '>') spec.align = '=';
    ++at;
  }
  spec.width = static_cast<size_t>(read_number(text, at));
  if (next() == ',' || next() == '_') {
    spec.grouping = text[at++];
    if (next() == ',' || next() == '_') {
      if (next() == spec.grouping) raise(FaultKind::value, "Cannot specify '{0}' with '{0}'.", spec.grouping);
      raise(FaultKind::value, "Cannot specify both ',' and '_'.");
    }
  }
  if (next() == '.') {
    ++at;
    if (!(next() >= '0' && next() <= '9')) raise(FaultKind::value, "Format specifier missing precision");
    spec.precision = read_number(text, at);
  }
  if (text.size() - at > 1) {
    raise(FaultKind::value, "Invalid format specifier '{}' for object of type '{}'", text, type_name(value));
  }
  if (at < text.size()) spec.type = text[at];
  if (spec.align == 0) spec.align = default_align;
  if (spec.grouping != 0) {
    const std::string_view allowed = spec.grouping == ',' ? "deEfFgG%" : "deEfFgG%boxX";
    if (spec.type != 0 && allowed.find(spec.type) == std::string_view::npos) {
      raise(FaultKind::value, "Cannot specify '{}' with '{}'.", spec.grouping, spec.type);
    }
  }
  return spec;
}

[[noreturn]] void unknown_type(const Specification& spec, const Value& value) {
  raise(FaultKind::value, "Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
}

std::string grouped(std::string_view digits, char separator, size_t group, size_t least_width) {
  std::string out(digits);
  const auto width = [&] { return out.size() + (separator != 0 && !out.empty() ? (out.size() - 1) / group : 0); };
  if (least_width > width()) check_text_size(least_width);
  while (width() < least_width) {
    out.insert(0, std::max<size_t>(1, (least_width - width()) * group / (group + 1)), '0');
  }
  if (separator == 0) return out;
  spend_on_characters(out.size());
  std::string separated;
  for (size_t i = 0; i < out.size(); ++i) {
    if (i != 0 && (out.size() - i) % group == 0) separated += separator;
    separated += out[i];
  }
  return separated;
}

std::string filled(const Specification& spec, const std::string& sign, const std::string& body) {
  const size_t length = sign.size() + count_code_points(body);
  const size_t missing = spec.width > length ? spec.width - length : 0;
  const size_t left = spec.align == '<' ? 0 : spec.align == '^' ? missing / 2 : missing;
  const std::string before = repeated_text(spec.fill, left), after = repeated_text(spec.fill, missing - left);
  if (spec.align == '=') return sign + before + body;
  return before + sign + body + after;
}

/// Sign, prefix, grouped digits and the rest (fraction, exponent, percent sign), filled to the width.
std::string number_text(const Specification& spec, bool negative, const std::string& prefix, std::string_view digits,
                        std::string_view rest, size_t group) {
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  sign += prefix;
  const bool zeros = spec.fill == "0" && spec.align == '=';
  const size_t others = sign.size() + rest.size();
  const size_t least = zeros && spec.width > others ? spec.width - others : 0;
  return filled(spec, sign, grouped(digits, spec.grouping, group, least) + std::string(rest));
}

std::string format_text(const Value& value, std::string_view text) {
  const Specification spec = parse(text, value, '<');
  if (spec.type != 0 && spec.type != 's') unknown_type(spec, value);
  if (spec.sign != 0) raise(FaultKind::value, "Sign not allowed in string format specifier");
  if (spec.no_negative_zero) {
    raise(FaultKind::value, "Negative zero coercion (z) not allowed in string format specifier");
  }
  if (spec.alternate) raise(FaultKind::value, "Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != 0) raise(FaultKind::value, "Cannot specify '{}' with 's'.", spec.grouping);
  if (spec.align == '=') raise(FaultKind::value, "'=' alignment not allowed in string format specifier");
  std::string_view body = value.text();
  if (spec.precision) body = body.substr(0, byte_of_code_point(body, static_cast<size_t>(*spec.precision)));
  return filled(spec, "", std::string(body));
}

std::string format_real(const Value& value, Specification spec) {
  double number = value.is_integer() ? real_from_integer(value.as_integer()) : value.as_real();
  char type = spec.type;
  std::string suffix;
  if (type == '%') {
    number *= 100;
    type = 'f';
    suffix = "%";
  } else if (type == 'n') {
    type = 'g';
  }
  if (type != 0 && std::string_view("eEfFgG").find(type) == std::string_view::npos) unknown_type(spec, value);
  std::string text;
  if (type != 0) {
    text = real_formatted(number, type, spec.precision.value_or(6), spec.alternate);
  } else if (!spec.precision) {
    text = real_text(number);
  } else {
    text = real_formatted(number, 'g', *spec.precision, spec.alternate);
    // without a type there is always a digit after the point, and the exponent form begins one digit sooner
    const int exponent = number == 0 || !std::isfinite(number) ? 0 : [&] {
      const std::string e = real_formatted(number, 'e', std::max(*spec.precision, 1) - 1, false);
      int power = 0;
      const size_t at = e.find('e') + 1;
      std::from_chars(e.data() + at + (e[at] == '+' ? 1 : 0), e.data() + e.size(), power);
      return power;
    }();
    if (std::isfinite(number) && exponent >= std::max(*spec.precision, 1) - 1 && text.find('e') == std::string::npos) {
      text = real_formatted(number, 'e', std::max(*spec.precision, 1) - 1, spec.alternate);
      const size_t e = text.find('e');
      if (text.find('.') != std::string::npos && !spec.alternate) {
        size_t end = e;
        while (text[end - 1] == '0') --end;
        if (text[end - 1] == '.') --end;
        text.erase(end, e - end);
      }
    } else if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) {
      text += ".0";
    }
  }
  bool negative = text.front() == '-';
  if (negative) text.erase(0, 1);
  if (negative && spec.no_negative_zero && text.find_first_of("123456789") == std::string::npos &&
      std::isfinite(number)) {
    negative = false;
  }
  size_t whole = 0;
  while (whole < text.size() && text[whole] >= '0' && text[whole] <= '9') ++whole;
  return number_text(spec, negative, "", std::string_view(text).substr(0, whole), text.substr(whole) + suffix, 3);
}

std::string format_integer(const Value& value, const Specification& spec) {
  if (spec.precision) raise(FaultKind::value, "Precision not allowed in integer format specifier");
  if (spec.no_negative_zero) {
    raise(FaultKind::value, "Negative zero coercion (z) not allowed in integer format specifier");
  }
  const Integer number = value.as_integer();
  if (spec.type == 'c') {
    if (spec.sign != 0) raise(FaultKind::value, "Sign not allowed with integer format specifier 'c'");
    if (spec.alternate) raise(FaultKind::value, "Alternate form (#) not allowed with integer format specifier 'c'");
    if (number < 0 || number >= 0x110000) raise(FaultKind::overflow, "%c arg not in range(0x110000)");
    std::string body;
    append_utf8(body, number >= 0xD800 && number < 0xE000 ? char32_t{0xFFFD} : static_cast<char32_t>(number));
    return filled(spec, "", body);
  }
  const unsigned base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  std::string digits = integer_text(number, base);
  if (number < 0) digits.erase(0, 1);
  if (spec.type == 'X') digits = to_upper(digits);
  std::string prefix;
  if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  return number_text(spec, number < 0, prefix, digits, "", base == 10 ? 3 : 4);
}

}  // namespace

std::string real_formatted(double value, char type, int precision, bool alternate) {
  const bool upper = type >= 'A' && type <= 'Z';
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return upper ? to_upper(text) : text;
  }
  if (precision > most_digits) raise(FaultKind::limit, "a precision of {} digits is too big", precision);
  const char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  const int size = std::snprintf(nullptr, 0, format, precision, value);
  spend(static_cast<uint64_t>(std::max(size, 0)));
  std::vector<char> buffer(static_cast<size_t>(std::max(size, 0)) + 1);
  std::snprintf(buffer.data(), buffer.size(), format, precision, value);
  return buffer.data();
}

std::string formatted(const Value& value, std::string_view specification) {
  if (specification.empty()) return str(value);
  if (value.is_string()) return format_text(value, specification);
  if (value.is(Kind::real)) return format_real(value, parse(specification, value, '>'));
  if (value.is_integer()) {
    const Specification spec = parse(specification, value, '>');
    switch (spec.type) {
      case 0:
      case 'b':
      case 'c':
      case 'd':
      case 'o':
      case 'x':
      case 'X':
      case 'n':
        return format_integer(value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case '%':
        return format_real(value, spec);
      default:
        unknown_type(spec, value);
    }
  }
  raise(FaultKind::type, "unsupported format string passed to {}.__format__", type_name(value));
}

double rounded(double value, Integer digits) {
  if (!std::isfinite(value) || digits > 322) return value;
  if (digits < -308) return std::copysign(0.0, value);
  std::string text;
  if (digits >= 0) {
    text = real_formatted(value, 'f', static_cast<int>(digits), false);
  } else {
    // how many significant digits stay when the last -digits before the point go
    const std::string e = real_formatted(value, 'e', 17, false);
    int exponent = 0;
    const size_t at = e.find('e') + 1;
    std::from_chars(e.data() + at + (e[at] == '+' ? 1 : 0), e.data() + e.size(), exponent);
    const int keep = exponent + 1 + static_cast<int>(digits);
    if (keep < 0) return std::copysign(0.0, value);
    if (keep == 0) {
      const double unit = std::pow(10.0, -static_cast<double>(digits));
      return std::copysign(std::abs(value) > unit / 2 ? unit : 0.0, value);
    }
    text = real_formatted(value, 'e', keep - 1, false);
  }
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

}  // namespace moetier::jinja
