#include <cmath>
#include <optional>

#include "tokenizer/template/access.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

constexpr Integer widest = 1 << 26;

struct Conversion {
  bool left = false, sign = false, space = false, alternate = false, zero = false;
  size_t width = 0;
  std::optional<int> precision;
  char type = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(const Value& text, const Value& values)
      : text_(text.text()), safe_(text.is_safe()), values_(values) {
    // Python takes whatever has items and is neither a tuple nor text as a mapping
    const bool has_items = values.is(Kind::dict) || values.is(Kind::list) || values.is_undefined() ||
                           (values.is(Kind::object) && values.as_object().has_items());
    is_mapping_ = has_items;
  }

  std::string run() {
    while (at_ < text_.size()) {
      const size_t percent = text_.find('%', at_);
      out_ += text_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      conversion();
      check_text_size(out_.size());
    }
    const bool left_over = values_.is(Kind::tuple) ? used_ < values_.items().size() : used_ == 0;
    if (left_over && !is_mapping_) raise(FaultKind::type, "not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char take() {
    if (at_ >= text_.size()) raise(FaultKind::value, "incomplete format");
    return text_[at_++];
  }

  Value next_value() {
    if (from_key_) return *from_key_;
    if (values_.is(Kind::tuple)) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_ == 0) {
      ++used_;
      return values_;
    }
    raise(FaultKind::type, "not enough arguments for format string");
  }

  void read_key() {
    int open = 1;
    const size_t begin = at_;
    while (open > 0) {
      if (at_ >= text_.size()) raise(FaultKind::value, "incomplete format key");
      const char c = text_[at_++];
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (!is_mapping_) raise(FaultKind::type, "format requires a mapping");
    const Value key = Value::string(std::string(text_.substr(begin, at_ - 1 - begin)));
    const Value found = plain_item(values_, key);
    if (found.is_missing()) {
      if (values_.is(Kind::dict)) raise(FaultKind::key, "{}", repr(key));
      raise(FaultKind::type, "{} indices must be integers or slices, not str", type_name(values_));
    }
    from_key_ = found;
  }

  Integer read_number(char first) {
    Integer number = first - '0';
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      number = number * 10 + (text_[at_++] - '0');
      if (number > widest) raise(FaultKind::limit, "a width or precision in a format is too big");
    }
    return number;
  }

  Integer star() {
    const Value value = next_value();
    if (!value.is_integer()) raise(FaultKind::type, "* wants int");
    const Integer number = value.as_integer();
    if (number > widest || number < -widest) raise(FaultKind::limit, "a width or precision in a format is too big");
    return number;
  }

  void conversion() {
    Conversion c;
    from_key_.reset();
    char next = take();
    if (next == '(') {
      read_key();
      next = take();
    }
    for (;; next = take()) {
      bool* flag = next == '-' ? &c.left : next == '+' ? &c.sign : next == ' ' ? &c.space : nullptr;
      if (next == '#') flag = &c.alternate;
      if (next == '0') flag = &c.zero;
      if (flag == nullptr) break;
      *flag = true;
    }
    Integer width = 0;
    if (next == '*') {
      width = star();
      next = take();
    } else if (next >= '1' && next <= '9') {
      width = read_number(next);
      next = take();
    }
    if (width < 0) c.left = true;
    c.width = static_cast<size_t>(width < 0 ? -width : width);
    if (next == '.') {
      Integer precision = 0;
      next = take();
      if (next == '*') {
        precision = std::max<Integer>(star(), 0);
        next = take();
      } else if (next >= '0' && next <= '9') {
        precision = read_number(next);
        next = take();
      }
      c.precision = static_cast<int>(precision);
    }
    if (next == 'h' || next == 'l' || next == 'L') next = take();
    c.type = next;
    write(c);
  }

  void write(const Conversion& c) {
    switch (c.type) {
      case '%':
        out_ += '%';
        return;
      case 's':
      case 'r':
      case 'a':
        return write_text(c);
      case 'c':
        return pad(c, {}, character(next_value()), false);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return write_integer(c);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return write_real(c);
      default:
        break;
    }
    size_t at = at_ - 1;
    while (at > 0 && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80) --at;
    const char32_t code = next_code_point(text_, at);
    raise(FaultKind::value, "unsupported format character '{}' (0x{:x}) at index {}",
          code < 0x80 && code >= 0x20 ? std::string(1, c.type) : "?", static_cast<uint32_t>(code), at_ - 1);
  }

  void write_text(const Conversion& c) {
    const Value value = next_value();
    std::string text = c.type == 's' ? str(value) : c.type == 'r' ? repr(value) : ascii_repr(value);
    if (safe_ && !(c.type == 's' && value.is_safe())) text = escaped_text(text);
    if (c.precision) text.resize(byte_of_code_point(text, static_cast<size_t>(*c.precision)));
    pad(c, {}, text, false);
  }

  static std::string character(const Value& value) {
    if (value.is_integer()) {
      const Integer code = value.as_integer();
      if (code < 0 || code >= 0x110000) raise(FaultKind::overflow, "%c arg not in range(0x110000)");
      std::string out;
      append_utf8(out, code >= 0xD800 && code < 0xE000 ? char32_t{0xFFFD} : static_cast<char32_t>(code));
      return out;
    }
    if (value.is_string() && value.string_data().length == 1) return std::string(value.text());
    raise(FaultKind::type, "%c requires int or char");
  }

  void write_integer(const Conversion& c) {
    const Value value = next_value();
    if (value.is_undefined()) raise_undefined(value);
    const bool based = c.type == 'o' || c.type == 'x' || c.type == 'X';
    if (!value.is_number() || (based && !value.is_integer())) {
      raise(FaultKind::type, "%{} format: {} is required, not {}", c.type, based ? "an integer" : "a real number",
            type_name(value));
    }
    const Integer number = value.is_integer() ? value.as_integer() : integer_from_real(value.as_real());
    std::string digits = integer_text(number, c.type == 'o' ? 8 : based ? 16 : 10);
    std::string sign = number < 0 ? "-" : c.sign ? "+" : c.space ? " " : "";
    if (number < 0) digits.erase(0, 1);
    if (c.precision && digits.size() < static_cast<size_t>(*c.precision)) {
      digits.insert(0, static_cast<size_t>(*c.precision) - digits.size(), '0');
    }
    if (c.type == 'X') digits = to_upper(digits);
    if (c.alternate && based) sign += c.type == 'o' ? "0o" : c.type == 'x' ? "0x" : "0X";
    pad(c, sign, digits, c.zero);
  }

  void write_real(const Conversion& c) {
    const Value value = next_value();
    if (value.is_undefined()) raise_undefined(value);
    if (!value.is_number()) raise(FaultKind::type, "must be real number, not {}", type_name(value));
    const double number = value.is_integer() ? real_from_integer(value.as_integer()) : value.as_real();
    std::string digits = real_formatted(number, c.type, c.precision.value_or(6), c.alternate);
    const bool negative = digits.front() == '-';
    if (negative) digits.erase(0, 1);
    pad(c, negative ? "-" : c.sign ? "+" : c.space ? " " : "", digits, c.zero);
  }

  void pad(const Conversion& c, std::string_view sign, std::string_view body, bool zero) {
    const size_t length = sign.size() + count_code_points(body);
    const size_t fill = c.width > length ? c.width - length : 0;
    check_text_size(out_.size() + fill + body.size());
    if (fill != 0 && !c.left && !zero) out_.append(fill, ' ');
    out_ += sign;
    if (fill != 0 && !c.left && zero) out_.append(fill, '0');
    out_ += body;
    if (c.left) out_.append(fill, ' ');
  }

  std::string_view text_;
  bool safe_;
  const Value& values_;
  bool is_mapping_ = false;
  size_t at_ = 0;
  size_t used_ = 0;
  std::optional<Value> from_key_;
  std::string out_;
};

}  // namespace

Value percent_formatted(const Value& text, const Value& values) {
  spend_on_characters(text.text().size());
  return Value::string(PercentFormatter(text, values).run(), text.is_safe());
}

}  // namespace moetier::jinja
