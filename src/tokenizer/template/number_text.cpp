#include "tokenizer/template/number_text.h"

#include <charconv>
#include <limits>
#include <string>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

/// Without white space around, in lower case, and with ASCII for the decimal digits of other scripts.
std::string simplified(std::string_view text) {
  spend_on_characters(text.size());
  std::string out;
  text = strip(text);
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const int digit = decimal_value(code);
    if (digit >= 0) {
      out += static_cast<char>('0' + digit);
    } else if (code >= 'A' && code <= 'Z') {
      out += static_cast<char>(code + ('a' - 'A'));
    } else {
      append_utf8(out, code);
    }
  }
  return out;
}

bool take_sign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  return 99;
}

bool is_digit_at(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

/// Moves over digits with single underscores between them; false if there are none or an underscore stands elsewhere.
bool take_digits(std::string_view text, size_t& at, std::string& out) {
  if (!is_digit_at(text, at)) return false;
  while (is_digit_at(text, at) || (at < text.size() && text[at] == '_' && is_digit_at(text, at + 1))) {
    if (text[at] != '_') out += text[at];
    ++at;
  }
  return true;
}

/// What a decimal out of the range of doubles becomes: zero if it is small, infinity if it is big.
double out_of_range(std::string_view digits) {
  const size_t e = digits.find('e');
  const std::string_view mantissa = digits.substr(0, e);
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view power = digits.substr(e + 1);
    const bool negative = take_sign(power);
    const auto result = std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (result.ec != std::errc()) exponent = std::numeric_limits<int32_t>::max();
    if (negative) exponent = -exponent;
  }
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = mantissa.find_first_not_of("0.");
  if (first == std::string_view::npos) return 0;
  const int64_t magnitude = exponent + static_cast<int64_t>(point) - static_cast<int64_t>(first);
  return magnitude > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

std::optional<Integer> parse_integer(std::string_view text, Integer base) {
  const std::string simple = simplified(text);
  std::string_view rest = simple;
  const bool negative = take_sign(rest);
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const auto prefix = [&](std::string_view letters, Integer of_base) {
    if (!rest.starts_with(letters) || (base != 0 && base != of_base)) return false;
    rest.remove_prefix(2);
    if (rest.starts_with('_')) rest.remove_prefix(1);
    base = of_base;
    return true;
  };
  const bool prefixed = prefix("0x", 16) || prefix("0o", 8) || prefix("0b", 2);
  if (base == 0) {
    base = 10;  // a leading zero would be C's octal, which Python refuses
    if (!prefixed && rest.starts_with('0') && rest.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  if (rest.empty() || rest.back() == '_') return std::nullopt;
  Integer number = 0;
  bool too_big = false, after_digit = false;
  for (const char c : rest) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    after_digit = true;
    too_big =
        too_big || __builtin_mul_overflow(number, base, &number) || __builtin_add_overflow(number, digit, &number);
  }
  if (too_big) raise(FaultKind::overflow, "an integer of {} digits does not fit 128 bits", rest.size());
  return negative ? -number : number;
}

std::optional<double> parse_real(std::string_view text) {
  const std::string simple = simplified(text);
  std::string_view rest = simple;
  const bool negative = take_sign(rest);
  const auto signed_value = [&](double value) { return negative ? -value : value; };
  if (rest == "inf" || rest == "infinity") return signed_value(std::numeric_limits<double>::infinity());
  if (rest == "nan") return signed_value(std::numeric_limits<double>::quiet_NaN());
  std::string digits;
  size_t at = 0;
  const bool whole = take_digits(rest, at, digits);
  bool fraction = false;
  if (at < rest.size() && rest[at] == '.') {
    digits += '.';
    fraction = take_digits(rest, ++at, digits);
  }
  if (!whole && !fraction) return std::nullopt;
  if (at < rest.size() && rest[at] == 'e') {
    digits += 'e';
    ++at;
    if (at < rest.size() && (rest[at] == '+' || rest[at] == '-')) digits += rest[at++];
    if (!take_digits(rest, at, digits)) return std::nullopt;
  }
  if (at != rest.size()) return std::nullopt;
  const size_t plus = digits.find("e+");
  if (plus != std::string::npos) digits.erase(plus + 1, 1);
  if (digits.front() == '.') digits.insert(0, 1, '0');
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec == std::errc::result_out_of_range) value = out_of_range(digits);
  return signed_value(value);
}

}  // namespace moetier::jinja
