#include <optional>

#include "tokenizer/template/access.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Value number_of(std::string_view text) {
  if (text.size() > 18) raise(FaultKind::value, "Too many decimal digits in format string");
  Integer number = 0;
  for (const char c : text) number = number * 10 + (c - '0');
  return Value::integer(number);
}

struct Field {
  std::string_view name, specification;
  char32_t conversion = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(const Arguments& arguments, bool safe) : arguments_(arguments), safe_(safe) {}

  std::string run(std::string_view text, int depth) {
    if (depth < 0) raise(FaultKind::value, "Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = text.find_first_of("{}", at);
      out += text.substr(at, brace - at);
      if (brace == std::string_view::npos) break;
      at = brace + 1;
      if (at < text.size() && text[at] == text[brace]) {
        out += text[at++];
      } else if (text[brace] == '}') {
        raise(FaultKind::value, "Single '}}' encountered in format string");
      } else if (at == text.size()) {
        raise(FaultKind::value, "Single '{{' encountered in format string");
      } else {
        out += field(parse(text, at), depth);
      }
      check_text_size(out.size());
    }
    return out;
  }

 private:
  /// Reads the field that begins at `at`, behind its brace; leaves `at` behind its end.
  static Field parse(std::string_view text, size_t& at) {
    Field field;
    const size_t begin = at;
    bool in_brackets = false;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (c == '{') raise(FaultKind::value, "unexpected '{{' in field name");
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '}' || c == ':' || c == '!')) break;
    }
    field.name = text.substr(begin, at - begin);
    if (at == text.size()) raise(FaultKind::value, "expected '}}' before end of string");
    if (text[at] == '!') {
      if (++at == text.size()) raise(FaultKind::value, "end of string while looking for conversion specifier");
      field.conversion = next_code_point(text, at);
      if (at == text.size()) raise(FaultKind::value, "unmatched '{{' in format spec");
      if (text[at] != '}' && text[at] != ':') raise(FaultKind::value, "expected ':' after conversion specifier");
    }
    if (text[at++] == '}') return field;
    const size_t specification = at;
    for (int open = 1; at < text.size(); ++at) {
      open += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (open == 0) {
        field.specification = text.substr(specification, at++ - specification);
        return field;
      }
    }
    raise(FaultKind::value, "unmatched '{{' in format spec");
  }

  std::string field(const Field& field, int depth) {
    Value value = look_up(field.name);
    switch (field.conversion) {
      case 0:
        break;
      case 's':
        value = Value::string(str(value));
        break;
      case 'r':
        value = Value::string(repr(value));
        break;
      case 'a':
        value = Value::string(ascii_repr(value));
        break;
      default:
        raise(FaultKind::value, "Unknown conversion specifier in a format string");
    }
    const std::string specification = run(field.specification, depth - 1);
    if (safe_) {
      if (value.is_safe()) {
        if (!specification.empty()) raise(FaultKind::value, "Unsupported format specification for Markup.");
        return std::string(value.text());
      }
      return escaped_text(formatted(value, specification));
    }
    return formatted(value, specification);
  }

  Value look_up(std::string_view name) {
    std::string_view rest = name;
    std::string numbered;
    if (name.empty()) {
      if (numbering_ == Numbering::manual) switched();
      numbering_ = Numbering::automatic;
      numbered = std::to_string(next_number_++);
      rest = numbered;
    } else if (is_number(name)) {
      if (numbering_ == Numbering::automatic && next_number_ > 0) switched();
      numbering_ = Numbering::manual;
    }
    const size_t end = rest.find_first_of(".[");
    Value value = first(rest.substr(0, end));
    rest.remove_prefix(std::min(end, rest.size()));
    while (!rest.empty()) value = step(value, rest);
    return value;
  }

  [[noreturn]] static void switched() {
    raise(FaultKind::value, "cannot switch from manual field specification to automatic field numbering");
  }

  Value first(std::string_view name) const {
    if (is_number(name)) {
      const Value index = number_of(name);
      if (index.as_integer() >= static_cast<Integer>(arguments_.positional.size())) {
        raise(FaultKind::index, "Replacement index {} out of range for positional args tuple", name);
      }
      return arguments_.positional[static_cast<size_t>(index.as_integer())];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    raise(FaultKind::key, "{}", repr_of_text(name));
  }

  static Value step(const Value& value, std::string_view& rest) {
    if (rest.front() == '.') {
      rest.remove_prefix(1);
      const std::string_view name = rest.substr(0, rest.find_first_of(".["));
      if (name.empty()) raise(FaultKind::value, "Empty attribute in format string");
      rest.remove_prefix(name.size());
      return get_attribute(value, name);
    }
    if (rest.front() != '[') {
      raise(FaultKind::value, "Only '.' or '[' may follow ']' in format field specifier");
    }
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) raise(FaultKind::value, "Missing ']' in format string");
    const std::string_view key = rest.substr(1, end - 1);
    if (key.empty()) raise(FaultKind::value, "Empty attribute in format string");
    rest.remove_prefix(end + 1);
    return get_item(value, is_number(key) ? number_of(key) : Value::string(std::string(key)));
  }

  enum class Numbering { undecided, manual, automatic };
  const Arguments& arguments_;
  bool safe_;
  Numbering numbering_ = Numbering::undecided;
  size_t next_number_ = 0;
};

}  // namespace

Value brace_formatted(const Value& text, const Arguments& arguments) {
  spend_on_characters(text.text().size());
  return Value::string(BraceFormatter(arguments, text.is_safe()).run(text.text(), 2), text.is_safe());
}

}  // namespace moetier::jinja
