#include <algorithm>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/json_text.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

/// The value as a string that it must be already.
const Value& required_text(const Value& value, std::string_view filter) {
  if (value.is_undefined()) raise_undefined(value);
  if (!value.is_string()) raise(FaultKind::type, "{} needs a string, not '{}'", filter, type_name(value));
  return value;
}

template <std::string (*change)(std::string_view)>
Value changed(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("the filter", {"s"}, 1, arguments);
  const Value text = soft_str(value);
  spend_on_characters(text.text().size());
  return Value::string(change(text.text()), text.is_safe());
}

bool begins_word(char32_t code) {
  return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
}

std::string upper_first(std::string_view word) {
  std::string out;
  size_t at = 0;
  append_upper(out, next_code_point(word, at));
  return out + to_lower(word.substr(at));
}

Value title(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("title", {"s"}, 1, arguments);
  const std::string text = str(value);
  spend_on_characters(text.size());
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const bool separator = begins_word(next_code_point(text, end));
    for (size_t next = end; next < text.size() && begins_word(next_code_point(text, next)) == separator;) end = next;
    out += upper_first(std::string_view(text).substr(at, end - at));
    at = end;
  }
  return Value::string(std::move(out));
}

Value trim(Interpreter&, Arguments&& arguments) {
  auto [value, characters] = bind<2>("trim", {"value", "chars"}, 1, arguments);
  const Value text = soft_str(value);
  std::optional<std::string_view> set;
  Value escaped_characters;
  if (!characters.is_missing() && !characters.is_none()) {
    if (!characters.is_string()) raise(FaultKind::type, "strip arg must be None or str");
    escaped_characters = text.is_safe() ? escaped(characters) : characters;
    set = escaped_characters.text();
  }
  return Value::string(std::string(stripped(text.text(), set, true, true)), text.is_safe());
}

Value replace(Interpreter&, Arguments&& arguments) {
  auto [value, from, to, count] = bind<4>("replace", {"s", "old", "new", "count"}, 3, arguments);
  const bool all = count.is_missing() || count.is_none();
  const int64_t times = all ? -1 : clamped_index(count, "an integer is required");
  return Value::string(replaced(str(value), str(from), str(to), times));
}

Value center(Interpreter&, Arguments&& arguments) {
  auto [value, width] = bind<2>("center", {"value", "width"}, 1, arguments);
  const Value text = soft_str(value);
  const int64_t columns = width.is_missing() ? 80 : clamped_index(width, "an integer is required");
  return Value::string(centered(text.text(), columns, " "), text.is_safe());
}

Value indent(Interpreter&, Arguments&& arguments) {
  auto [value, width, first, blank] = bind<4>("indent", {"s", "width", "first", "blank"}, 1, arguments);
  const Value& text = required_text(value, "indent");
  std::string indentation(4, ' ');
  if (width.is_string()) {
    indentation = width.text();
  } else if (!width.is_missing()) {
    const int64_t columns = std::max<int64_t>(clamped_index(width, "can't multiply sequence by non-int"), 0);
    check_text_size(static_cast<size_t>(columns));
    indentation.assign(static_cast<size_t>(columns), ' ');
  }
  const std::string with_end = std::string(text.text()) + "\n";
  const auto lines = split_lines(with_end, false);
  const bool indent_blank = !blank.is_missing() && truth(blank);
  std::string out = !first.is_missing() && truth(first) ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) {
      out += '\n';
      if (indent_blank || !lines[i].empty()) out += indentation;
    }
    check_text_size(out.size() + lines[i].size());
    out += lines[i];
  }
  return Value::string(std::move(out), text.is_safe());
}

Value truncate(Interpreter&, Arguments&& arguments) {
  auto [value, length_value, kill_words, end, leeway_value] =
      bind<5>("truncate", {"s", "length", "killwords", "end", "leeway"}, 1, arguments);
  const int64_t most = length_value.is_missing() ? 255 : clamped_index(length_value, "length must be an integer");
  const Value ending = given_or(end, Value::string("..."));
  const bool no_leeway = leeway_value.is_missing() || leeway_value.is_none();
  const int64_t leeway = no_leeway ? 5 : clamped_index(leeway_value, "leeway must be an integer");
  const auto end_length = static_cast<int64_t>(length(ending));
  if (most < end_length) raise(FaultKind::assertion, "expected length >= {}, got {}", end_length, most);
  if (leeway < 0) raise(FaultKind::assertion, "expected leeway >= 0, got {}", leeway);
  if (static_cast<Integer>(length(value)) <= static_cast<Integer>(most) + leeway) return value;
  const Value& text = required_text(value, "truncate");
  std::string_view kept = substring(text, 0, static_cast<size_t>(most - end_length));
  if (kill_words.is_missing() || !truth(kill_words)) kept = split_from_right(kept, " ", 1).front();
  return apply(Operator::add, Value::string(std::string(kept), text.is_safe()), ending);
}

Value word_count(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("wordcount", {"s"}, 1, arguments);
  const std::string text = str(value);
  spend_on_characters(text.size());
  Integer words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const bool part = code == '_' || is_alnum(code);
    if (part && !inside) ++words;
    inside = part;
  }
  return Value::integer(words);
}

Value word_wrap(Interpreter&, Arguments&& arguments) {
  auto [value, width_value, break_long, wrap_string, break_hyphens] =
      bind<5>("wordwrap", {"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"}, 1, arguments);
  const Value& text = required_text(value, "wordwrap");
  const int64_t width = width_value.is_missing() ? 79 : clamped_index(width_value, "width must be an integer");
  const bool no_string = wrap_string.is_missing() || wrap_string.is_none();
  const std::string between(no_string ? std::string_view("\n") : required_text(wrap_string, "wrapstring").text());
  std::string out;
  bool first_line = true;
  for (const std::string_view line : split_lines(text.text(), false)) {
    if (!first_line) out += between;
    first_line = false;
    bool first = true;
    for (const std::string& piece : wrapped_lines(line, width, break_long.is_missing() || truth(break_long),
                                                  break_hyphens.is_missing() || truth(break_hyphens))) {
      if (!first) out += between;
      first = false;
      check_text_size(out.size() + piece.size() + between.size());
      out += piece;
    }
  }
  return Value::string(std::move(out));
}

Value format(Interpreter&, Arguments&& arguments) {
  if (arguments.positional.empty()) raise(FaultKind::type, "format needs a value");
  const Value text = soft_str(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  if (arguments.named.empty()) return percent_formatted(text, Value::tuple(std::move(arguments.positional)));
  if (!arguments.positional.empty()) {
    raise(FaultKind::argument, "can't handle positional and keyword arguments at the same time");
  }
  auto mapping = std::make_shared<DictData>();
  for (auto& [name, value] : arguments.named) mapping->set(Value::string(name), std::move(value));
  return percent_formatted(text, Value::dict(std::move(mapping)));
}

Value to_string(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("string", {"object"}, 1, arguments);
  return soft_str(value);
}

/// Hugging Face's tojson: json.dumps with ensure_ascii off and nothing escaped for HTML.
Value to_json(Interpreter&, Arguments&& arguments) {
  auto [value, ascii, indent_value, separators, sorted] =
      bind<5>("tojson", {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1, arguments);
  JsonStyle style;
  style.ascii = !ascii.is_missing() && truth(ascii);
  style.sorted = !sorted.is_missing() && truth(sorted);
  if (!indent_value.is_missing() && !indent_value.is_none()) {
    style.lines = true;
    style.item_separator.assign(1, ',');
    if (indent_value.is_string()) {
      style.indent = indent_value.text();
    } else {
      const int64_t columns = std::max<int64_t>(clamped_index(indent_value, "can't multiply sequence by non-int"), 0);
      check_text_size(static_cast<size_t>(columns));
      style.indent.assign(static_cast<size_t>(columns), ' ');
    }
  }
  if (!separators.is_missing() && !separators.is_none()) {
    const std::vector<Value> both = collect(separators);
    if (both.size() != 2) raise(FaultKind::value, "tojson needs two separators, not {}", both.size());
    style.item_separator = required_text(both[0], "tojson").text();
    style.key_separator = required_text(both[1], "tojson").text();
  }
  return Value::string(json_text(value, style));
}

constexpr NamedFunction filters[] = {{"capitalize", changed<capitalized>},
                                     {"center", center},
                                     {"format", format},
                                     {"indent", indent},
                                     {"lower", changed<to_lower>},
                                     {"replace", replace},
                                     {"string", to_string},
                                     {"title", title},
                                     {"tojson", to_json},
                                     {"trim", trim},
                                     {"truncate", truncate},
                                     {"upper", changed<to_upper>},
                                     {"wordcount", word_count},
                                     {"wordwrap", word_wrap}};

}  // namespace

std::span<const NamedFunction> text_filters() {
  return filters;
}

}  // namespace moetier::jinja
