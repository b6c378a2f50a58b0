#include "tokenizer/template/lexer.h"

#include <algorithm>
#include <array>

#include "tokenizer/template/number_text.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

/// One line end for \r\n and \r, and none at the very end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

int count_lines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

/// The value of a string literal (without its quotes): Python's unicode_escape.
class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (at_ < text_.size()) {
      const size_t backslash = text_.find('\\', at_);
      out_ += text_.substr(at_, backslash - at_);
      if (backslash == npos) break;
      at_ = backslash + 1;
      escape();
    }
    return std::move(out_);
  }

 private:
  void escape() {
    const size_t begin = at_;
    const char32_t code = next_code_point(text_, at_);
    switch (code) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        out_ += static_cast<char>(code);
        return;
      case 'a':
        out_ += '\a';
        return;
      case 'b':
        out_ += '\b';
        return;
      case 'f':
        out_ += '\f';
        return;
      case 'n':
        out_ += '\n';
        return;
      case 'r':
        out_ += '\r';
        return;
      case 't':
        out_ += '\t';
        return;
      case 'v':
        out_ += '\v';
        return;
      case 'x':
        return hexadecimal(2, "truncated \\xXX escape");
      case 'u':
        return hexadecimal(4, "truncated \\uXXXX escape");
      case 'U':
        return hexadecimal(8, "truncated \\UXXXXXXXX escape");
      case 'N':
        fail("\\N escapes are not supported");
      default:
        break;
    }
    if (code >= '0' && code <= '7') return octal(begin);
    out_ += '\\';
    if (code < 0x80) {
      out_ += static_cast<char>(code);
    } else {  // jinja2 has turned the character into an escape, whose backslash this one now quotes
      std::string quoted;
      append_code_escape(quoted, code);
      out_ += quoted.substr(1);
    }
  }

  void octal(size_t begin) {
    char32_t code = 0;
    for (at_ = begin; at_ < text_.size() && at_ < begin + 3 && text_[at_] >= '0' && text_[at_] <= '7'; ++at_) {
      code = code * 8 + static_cast<char32_t>(text_[at_] - '0');
    }
    append_utf8(out_, code);
  }

  void hexadecimal(size_t digits, const char* message) {
    const std::string_view text = text_.substr(at_, digits);
    const bool fits = text.size() == digits && text.find_first_not_of("0123456789abcdefABCDEF") == npos;
    if (!fits) fail(message);
    at_ += digits;
    const Integer code = *parse_integer(text, 16);
    if (code > 0x10FFFF) fail("illegal Unicode character");
    if (code >= 0xD800 && code < 0xE000) fail("a lone surrogate is not a character");
    append_utf8(out_, static_cast<char32_t>(code));
  }

  [[noreturn]] void fail(const char* message) const { throw Fault(FaultKind::syntax, message, line_); }

  std::string_view text_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw Fault(FaultKind::syntax, message, line_); }

  bool at(std::string_view text) const { return source_.substr(at_, text.size()) == text; }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text), {}});
    spend(1);
  }

  void move_to(size_t position) {
    line_ += count_lines(source_.substr(at_, position - at_));
    line_starting_ = position > at_ ? source_[position - 1] == '\n' : line_starting_;
    at_ = position;
  }

  size_t skip_space(size_t from) const { return source_.size() - strip_left(source_.substr(from)).size(); }

  /// The data before the tag at `tag`, as far as the tag's sign leaves it, and moves there.
  void take_data(size_t tag, char sign, bool may_strip) {
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && may_strip) {
      const size_t line_begin = text.rfind('\n') + 1;
      const std::string_view last = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && !last.empty() && strip(last).empty()) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
    move_to(tag);
  }

  char sign_at(size_t position) const {
    if (position >= source_.size()) return 0;
    return source_[position] == '-' || source_[position] == '+' ? source_[position] : '\0';
  }

  /// The end of `{% raw %}` if it begins at the block tag `tag`, else 0.
  size_t raw_begin(size_t tag) const { return keyword_tag(tag, "raw", false); }

  /// Where a tag ends that holds only `keyword`. Behind endraw one line end is trimmed, and a plus sign may stand.
  size_t keyword_tag(size_t tag, std::string_view keyword, bool trims) const {
    size_t position = tag + 2;
    if (sign_at(position) != 0) ++position;
    position = skip_space(position);
    if (source_.substr(position, keyword.size()) != keyword) return 0;
    return tag_end(skip_space(position + keyword.size()), "%}", trims, trims);
  }

  /// Where the closing mark at `position` ends, white space behind a minus sign included; 0 if there is none.
  size_t tag_end(size_t position, std::string_view mark, bool trims, bool plus) const {
    const char sign = sign_at(position);
    if (sign == '+' && !plus) return 0;
    if (source_.substr(position + (sign != 0 ? 1 : 0), 2) != mark) return 0;
    size_t end = position + 2 + (sign != 0 ? 1 : 0);
    if (sign == '-') return skip_space(end);
    if (sign == 0 && trims && end < source_.size() && source_[end] == '\n') ++end;
    return end;
  }

  void text_and_tag() {
    size_t tag = at_;
    while ((tag = source_.find('{', tag)) != npos) {
      if (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != npos) break;
      ++tag;
    }
    if (tag == npos) {
      add(TokenKind::data, std::string(source_.substr(at_)));
      return move_to(source_.size());
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    take_data(tag, sign, kind != '{');
    if (kind == '%') {
      if (const size_t end = raw_begin(tag)) return raw(end);
    }
    if (kind != '#') add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, {});
    move_to(tag + (sign != 0 ? 3 : 2));
    if (kind == '#') {
      comment();
    } else {
      code(kind == '%');
    }
  }

  void comment() {
    if (at_ == source_.size()) return;  // jinja2 only misses the end of a comment that has begun to say something
    size_t close = source_.find("#}", at_);
    if (close == npos) fail("Missing end of comment tag");
    if (close > at_ && sign_at(close - 1) != 0) --close;
    move_to(tag_end(close, "#}", true, true));
  }

  void raw(size_t begin) {
    move_to(begin);
    for (size_t tag = source_.find("{%", begin); tag != npos; tag = source_.find("{%", tag + 1)) {
      const size_t end = keyword_tag(tag, "endraw", true);
      if (end == 0) continue;
      take_data(tag, sign_at(tag + 2), true);
      return move_to(end);
    }
    if (at_ < source_.size()) fail("Missing end of raw directive");
  }

  /// Tokens up to and with the closing mark.
  void code(bool block) {
    std::string open;  // brackets still to be closed
    const std::string_view mark = block ? "%}" : "}}";
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const size_t end = tag_end(at_, mark, block, block)) {
          add(block ? TokenKind::block_end : TokenKind::variable_end, {});
          return move_to(end);
        }
      }
      if (const size_t end = skip_space(at_); end > at_) {
        move_to(end);
      } else if (!number() && !name() && !string()) {
        op(open);
      }
    }
  }

  size_t digits_end(size_t position, std::string_view allowed) const {
    const auto is_one = [&](size_t p) { return p < source_.size() && allowed.find(source_[p]) != npos; };
    while (is_one(position) || (position < source_.size() && source_[position] == '_' && is_one(position + 1)))
      ++position;
    return position;
  }

  bool number() {
    constexpr std::string_view decimal = "0123456789";
    if (!is_ascii_digit(source_[at_])) return false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      size_t end = digits_end(at_, decimal);
      bool real = false;
      if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1])) {
        end = digits_end(end + 1, decimal);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t power = end + 1 + (sign_at(end + 1) != 0 ? 1 : 0);
        if (power < source_.size() && is_ascii_digit(source_[power])) {
          end = digits_end(power, decimal);
          real = true;
        }
      }
      if (real) {
        add_number(TokenKind::real, end);
        return true;
      }
    }
    add_number(TokenKind::integer, integer_end());
    return true;
  }

  size_t integer_end() const {
    if (source_[at_] != '0') return digits_end(at_, "0123456789");
    const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    const std::string_view allowed = letter == 'b'   ? "01"
                                     : letter == 'o' ? "01234567"
                                     : letter == 'x' ? "0123456789abcdefABCDEF"
                                                     : "";
    if (!allowed.empty()) {
      // as if the letter were a digit, so that an underscore may follow it
      const size_t end = digits_end(at_ + 2, allowed);
      if (end > at_ + 2) return end;
    }
    return digits_end(at_, "0");
  }

  void add_number(TokenKind kind, size_t end) {
    const std::string_view text = source_.substr(at_, end - at_);
    Token token{kind, line_, std::string(text), {}};
    if (kind == TokenKind::integer) {
      try {
        token.number = Value::integer(parse_integer(text, 0).value_or(0));
      } catch (Fault& fault) {
        fault.set_line(line_);
        throw;
      }
    } else {
      token.number = Value::real(parse_real(text).value_or(0));
    }
    tokens_.push_back(std::move(token));
    move_to(end);
  }

  bool name() {
    size_t end = at_, position = at_;
    bool fits = true;
    while (position < source_.size()) {
      const char32_t code = next_code_point(source_, position);
      if (!is_identifier_part(code) && !is_alnum(code)) break;
      fits = fits && (end == at_ ? is_identifier_start(code) : is_identifier_part(code));
      end = position;
    }
    if (end == at_) return false;
    if (!fits) fail("Invalid character in identifier");
    add(TokenKind::name, std::string(source_.substr(at_, end - at_)));
    move_to(end);
    return true;
  }

  bool string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    add(TokenKind::string, Unescaper(source_.substr(at_ + 1, end - at_ - 1), line_).run());
    move_to(end + 1);
    return true;
  }

  void op(std::string& open) {
    static constexpr std::array<std::string_view, 6> pairs = {"//", "**", "==", "!=", ">=", "<="};
    size_t size = 0;
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(source_[at_]) != npos) size = 1;
    for (const std::string_view pair : pairs) size = at(pair) ? 2 : size;
    if (size == 0) {
      size_t end = at_;
      next_code_point(source_, end);
      fail(fmt::format("unexpected char {} at {}", repr_of_text(source_.substr(at_, end - at_)),
                       count_code_points(source_.substr(0, at_))));
    }
    const std::string_view text = source_.substr(at_, size);
    if (const size_t kind = std::string_view("([{").find(text); kind != npos) {
      open += ")]}"[kind];
    } else if (std::string_view(")]}").find(text) != npos) {
      if (open.empty()) fail(fmt::format("unexpected '{}'", text));
      const char expected = open.back();
      open.pop_back();
      if (text.front() != expected) fail(fmt::format("unexpected '{}', expected '{}'", text, expected));
    }
    add(TokenKind::op, std::string(text));
    move_to(at_ + size);
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "template data / text";
    case TokenKind::variable_begin:
      return "begin of print statement";
    case TokenKind::variable_end:
      return "end of print statement";
    case TokenKind::block_begin:
      return "begin of statement block";
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::string:
      return "string";
    case TokenKind::integer:
      return "integer";
    case TokenKind::real:
      return "float";
    case TokenKind::end:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace moetier::jinja
