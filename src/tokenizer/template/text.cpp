#include "tokenizer/template/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/template/object.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

void append_items(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ", ";
    append_repr(out, items[i]);
  }
}

void append_dict(std::string& out, const DictData& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
  }
  out += '}';
}

}  // namespace

void append_code_escape(std::string& out, char32_t code) {
  spend(1);
  const auto number = static_cast<uint32_t>(code);
  if (code <= 0xFF) {
    out += fmt::format("\\x{:02x}", number);
  } else if (code <= 0xFFFF) {
    out += fmt::format("\\u{:04x}", number);
  } else {
    out += fmt::format("\\U{:08x}", number);
  }
}

void append_str(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return;
    case Kind::string:
      spend_on_text(value.text().size());
      out += value.text();
      return;
    default:
      append_repr(out, value);
  }
}

std::string str(const Value& value) {
  std::string out;
  append_str(out, value);
  return out;
}

Value soft_str(const Value& value) {
  return value.is_string() ? value : Value::string(str(value));
}

void append_repr(std::string& out, const Value& value) {
  const Level level;
  spend(1);
  check_text_size(out.size());
  switch (value.kind()) {
    case Kind::missing:
      out += "missing";
      return;
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += value.as_boolean() ? "True" : "False";
      return;
    case Kind::integer:
      out += integer_text(value.as_integer());
      return;
    case Kind::real:
      out += real_text(value.as_real());
      return;
    case Kind::string: {
      spend_on_characters(value.text().size());
      const std::string quoted = repr_of_text(value.text());
      out += value.is_safe() ? fmt::format("Markup({})", quoted) : quoted;
      return;
    }
    case Kind::list:
      out += '[';
      append_items(out, value.items());
      out += ']';
      return;
    case Kind::tuple:
      out += '(';
      append_items(out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::dict:
      append_dict(out, value.dict_data());
      return;
    case Kind::object:
      out += value.as_object().repr();
      return;
  }
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string repr_of_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out += text.substr(begin, at - begin);
    } else {
      append_code_escape(out, code);
    }
  }
  out += quote;
  return out;
}

std::string ascii_repr(const Value& value) {
  const std::string text = repr(value);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else {
      append_code_escape(out, code);
    }
  }
  return out;
}

std::string integer_text(Integer value, unsigned base) {
  __extension__ typedef unsigned __int128 Unsigned;
  Unsigned rest = value < 0 ? -static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  std::string out;
  do {
    out += "0123456789abcdef"[static_cast<size_t>(rest % base)];
    rest /= base;
  } while (rest != 0);
  if (value < 0) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<size_t>(result.ptr - buffer));
  const std::string sign = shortest.front() == '-' ? "-" : "";
  shortest.remove_prefix(sign.size());
  const size_t e = shortest.find('e');
  std::string digits(shortest.substr(0, e));
  int exponent = 0;
  const std::string_view power = shortest.substr(e + (shortest[e + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::erase(digits, '.');
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, 1, '.');
    return fmt::format("{}{}e{}{:02d}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  digits.insert(static_cast<size_t>(exponent) + 1, 1, '.');
  return sign + digits;
}

std::string escaped_text(std::string_view text) {
  spend_on_characters(text.size());
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value escaped(const Value& value) {
  if (value.is_safe()) return value;
  return Value::string(escaped_text(str(value)), true);
}

}  // namespace moetier::jinja
