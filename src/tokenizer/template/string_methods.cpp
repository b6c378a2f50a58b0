#include <algorithm>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/methods.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

std::string_view text_argument(const Value& value, std::string_view method) {
  if (!value.is_string()) raise(FaultKind::type, "{}() argument must be str, not {}", method, type_name(value));
  return value.text();
}

std::optional<std::string_view> optional_text(const Value& value, std::string_view method) {
  if (value.is_missing() || value.is_none()) return std::nullopt;
  return text_argument(value, method);
}

int64_t integer_argument(const Value& value, int64_t otherwise) {
  if (value.is_missing()) return otherwise;
  return clamped_index(value, "an integer is required");
}

template <std::string (*change)(std::string_view), bool keeps_safe = true>
Value changed(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("the method", arguments);
  spend_on_characters(self.text().size());
  return Value::string(change(self.text()), keeps_safe && self.is_safe());
}

/// A method of Markup that escapes its arguments first.
template <Value (*method)(Interpreter&, const Value&, Arguments&&)>
Value escaping(Interpreter& interpreter, const Value& self, Arguments&& arguments) {
  if (self.is_safe()) {
    for (Value& value : arguments.positional) value = value.is_string() ? escaped(value) : value;
    for (auto& [name, value] : arguments.named) value = value.is_string() ? escaped(value) : value;
  }
  return method(interpreter, self, std::move(arguments));
}

/// A part of a string that a search looks at.
struct Window {
  std::string_view text;
  int64_t start = 0;  ///< its first code point
  bool valid = true;  ///< start is not behind the end
  size_t length = 0;  ///< code points
};

Window window(const Value& self, const Value& start, const Value& stop) {
  constexpr std::string_view what = "slice indices must be integers or None or have an __index__ method";
  const auto size = static_cast<int64_t>(self.string_data().length);
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (value.is_missing() || value.is_none()) return otherwise;
    const int64_t index = clamped_index(value, what);
    return index < 0 ? std::max<int64_t>(index + size, 0) : index;
  };
  const int64_t begin = place(start, 0), end = std::min(place(stop, size), size);
  if (begin > end) return {{}, begin, false, 0};
  const auto length = static_cast<size_t>(end - begin);
  return {substring(self, static_cast<size_t>(begin), length), begin, true, length};
}

template <bool from_right, bool must_exist>
Value find(Interpreter&, const Value& self, Arguments&& arguments) {
  constexpr std::string_view name = must_exist ? "index" : "find";
  auto [wanted, start, stop] = bind<3>(name, {"sub", "start", "end"}, 1, arguments, Naming::refused);
  const std::string_view text = text_argument(wanted, name);
  const Window where = window(self, start, stop);
  const size_t found = !where.valid ? std::string_view::npos
                       : from_right ? find_last_text(where.text, text)
                                    : find_text(where.text, text);
  if (found == std::string_view::npos) {
    if (must_exist) raise(FaultKind::value, "substring not found");
    return Value::integer(-1);
  }
  return Value::integer(where.start + static_cast<Integer>(count_code_points(where.text.substr(0, found))));
}

Value count(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [wanted, start, stop] = bind<3>("count", {"sub", "start", "end"}, 1, arguments, Naming::refused);
  const std::string_view text = text_argument(wanted, "count");
  const Window where = window(self, start, stop);
  if (!where.valid) return Value::integer(0);
  if (text.empty()) return Value::integer(static_cast<Integer>(where.length) + 1);
  Integer times = 0;
  for (size_t at = find_text(where.text, text); at != std::string_view::npos;
       at = find_text(where.text, text, at + text.size())) {
    ++times;
  }
  return Value::integer(times);
}

template <bool at_start>
Value has_affix(Interpreter&, const Value& self, Arguments&& arguments) {
  constexpr std::string_view name = at_start ? "startswith" : "endswith";
  auto [affix, start, stop] = bind<3>(name, {"prefix", "start", "end"}, 1, arguments, Naming::refused);
  const Window where = window(self, start, stop);
  const auto matches = [&](const Value& value) {
    if (!value.is_string()) {
      raise(FaultKind::type, "{} first arg must be str or a tuple of str, not {}", name, type_name(value));
    }
    if (!where.valid || value.text().size() > where.text.size()) return false;
    spend_on_text(value.text().size());
    return at_start ? where.text.starts_with(value.text()) : where.text.ends_with(value.text());
  };
  if (!affix.is(Kind::tuple)) return Value::boolean(matches(affix));
  return Value::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

template <bool left, bool right>
Value strip_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [characters] = bind<1>("strip", {"chars"}, 0, arguments, Naming::refused);
  return Value::string(std::string(stripped(self.text(), optional_text(characters, "strip"), left, right)),
                       self.is_safe());
}

Value replace_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [from, to, times] = bind<3>("replace", {"old", "new", "count"}, 2, arguments, Naming::refused);
  return Value::string(
      replaced(self.text(), text_argument(from, "replace"), text_argument(to, "replace"), integer_argument(times, -1)),
      self.is_safe());
}

template <bool from_right>
Value split_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [separator, most] = bind<2>("split", {"sep", "maxsplit"}, 0, arguments);
  const auto at = optional_text(separator, "split");
  const int64_t times = integer_argument(most, -1);
  return list_of(from_right ? split_from_right(self.text(), at, times) : split(self.text(), at, times), self.is_safe());
}

Value split_lines_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [keep] = bind<1>("splitlines", {"keepends"}, 0, arguments);
  if (!keep.is_missing() && !keep.is_integer()) raise(FaultKind::type, "an integer is required");
  return list_of(split_lines(self.text(), !keep.is_missing() && truth(keep)), self.is_safe());
}

template <bool from_right>
Value partition_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [separator] = bind<1>("partition", {"sep"}, 1, arguments, Naming::refused);
  const std::string_view text = self.text(), at = text_argument(separator, "partition");
  if (at.empty()) raise(FaultKind::value, "empty separator");
  const size_t found = from_right ? find_last_text(text, at) : find_text(text, at);
  std::string_view parts[3] = {from_right ? std::string_view() : text, {}, from_right ? text : std::string_view()};
  if (found != std::string_view::npos) {
    parts[0] = text.substr(0, found);
    parts[1] = at;
    parts[2] = text.substr(found + at.size());
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(Value::string(std::string(part), self.is_safe()));
  return Value::tuple(std::move(items));
}

Value join_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [values] = bind<1>("join", {"iterable"}, 1, arguments, Naming::refused);
  if (!is_iterable(values)) raise(FaultKind::type, "can only join an iterable");
  std::string out;
  size_t at = 0;
  const auto iterator = iterate(values);
  for (Value item; iterator->next(item); ++at) {
    if (self.is_safe()) item = escaped(item);
    if (!item.is_string()) {
      raise(FaultKind::type, "sequence item {}: expected str instance, {} found", at, type_name(item));
    }
    if (at != 0) out += self.text();
    check_text_size(out.size() + item.text().size());
    out += item.text();
  }
  return Value::string(std::move(out), self.is_safe());
}

enum class Side { left, right, both };

template <Side side>
Value pad_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [width_value, fill_value] = bind<2>("center", {"width", "fillchar"}, 1, arguments, Naming::refused);
  const int64_t width = clamped_index(width_value, "an integer is required");
  const std::string_view fill = fill_value.is_missing() ? " " : text_argument(fill_value, "center");
  if (count_code_points(fill) != 1) raise(FaultKind::type, "The fill character must be exactly one character long");
  if (side == Side::both) return Value::string(centered(self.text(), width, fill), self.is_safe());
  const auto length = static_cast<int64_t>(self.string_data().length);
  if (width <= length) return self;
  std::string out = repeated_text(fill, static_cast<size_t>(width - length));
  out.insert(side == Side::left ? 0 : out.size(), self.text());
  return Value::string(std::move(out), self.is_safe());
}

Value zfill(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [width_value] = bind<1>("zfill", {"width"}, 1, arguments, Naming::refused);
  const int64_t width = clamped_index(width_value, "an integer is required");
  const auto length = static_cast<int64_t>(self.string_data().length);
  if (width <= length) return self;
  check_text_size(static_cast<size_t>(width - length));
  std::string text(self.text());
  const bool sign = !text.empty() && (text.front() == '+' || text.front() == '-');
  text.insert(sign ? 1 : 0, static_cast<size_t>(width - length), '0');
  return Value::string(std::move(text), self.is_safe());
}

Value expand_tabs(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [size] = bind<1>("expandtabs", {"tabsize"}, 0, arguments);
  const int64_t tab = integer_argument(size, 8);
  std::string out;
  int64_t column = 0;
  const std::string_view text = self.text();
  spend_on_characters(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (code == '\t') {
      if (tab <= 0) continue;
      const int64_t fill = tab - column % tab;
      check_text_size(out.size() + static_cast<size_t>(std::min<int64_t>(fill, INT64_MAX / 4)));
      out.append(static_cast<size_t>(fill), ' ');
      column += fill;
    } else {
      out += text.substr(begin, at - begin);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return Value::string(std::move(out), self.is_safe());
}

template <bool prefix>
Value remove_affix(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [affix] = bind<1>("removeprefix", {"prefix"}, 1, arguments, Naming::refused);
  std::string_view text = self.text();
  const std::string_view part = text_argument(affix, prefix ? "removeprefix" : "removesuffix");
  spend_on_text(std::min(part.size(), text.size()));
  if (prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!prefix && !part.empty() && text.ends_with(part)) text.remove_suffix(part.size());
  return Value::string(std::string(text));
}

/// All characters pass, and there is one.
template <bool (*test)(char32_t)>
Value all_are(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("the method", arguments);
  spend_on_characters(self.text().size());
  const std::string_view text = self.text();
  for (size_t at = 0; at < text.size();) {
    if (!test(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Value is_ascii(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("isascii", arguments);
  return Value::boolean(self.string_data().ascii());
}

Value all_printable(Interpreter& interpreter, const Value& self, Arguments&& arguments) {
  if (self.text().empty() && arguments.positional.empty()) return Value::boolean(true);
  return all_are<is_printable>(interpreter, self, std::move(arguments));
}

Value is_identifier(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("isidentifier", arguments);
  const std::string_view text = self.text();
  spend_on_characters(text.size());
  bool fits = !text.empty();
  for (size_t at = 0; fits && at < text.size();) {
    const bool first = at == 0;
    const char32_t code = next_code_point(text, at);
    fits = first ? is_identifier_start(code) : is_identifier_part(code);
  }
  return Value::boolean(fits);
}

Value is_title(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("istitle", arguments);
  bool cased = false, inside = false;
  const std::string_view text = self.text();
  spend_on_characters(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const bool starts = is_upper(code) || is_title_only(code);
    if (starts ? inside : (is_lower(code) && !inside)) return Value::boolean(false);
    inside = starts || is_lower(code);
    cased = cased || inside;
  }
  return Value::boolean(cased);
}

template <bool upper>
Value is_case(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing(upper ? "isupper" : "islower", arguments);
  return Value::boolean(has_case(self.text(), upper));
}

Value format_method(Interpreter&, const Value& self, Arguments&& arguments) {
  return brace_formatted(self, arguments);
}

Value format_map_method(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [mapping] = bind<1>("format_map", {"mapping"}, 1, arguments, Naming::refused);
  if (!mapping.is(Kind::dict)) raise(FaultKind::type, "format_map() needs a dict, not {}", type_name(mapping));
  Arguments named;
  for (const auto& [key, value] : mapping.dict_data().entries()) {
    if (key.is_string()) named.named.emplace_back(std::string(key.text()), value);
  }
  return brace_formatted(self, named);
}

Value not_supported(Interpreter&, const Value&, Arguments&&) {
  raise(FaultKind::unsupported, "str.encode, maketrans and translate are not supported in a chat template");
}

constexpr Method methods[] = {
    {"capitalize", changed<capitalized>},
    {"casefold", changed<case_folded, false>},
    {"center", escaping<pad_method<Side::both>>},
    {"count", count},
    {"encode", not_supported},
    {"endswith", has_affix<false>},
    {"expandtabs", expand_tabs},
    {"find", find<false, false>},
    {"format", format_method},
    {"format_map", format_map_method},
    {"index", find<false, true>},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", is_case<false>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", all_printable},
    {"isspace", all_are<is_space>},
    {"istitle", is_title},
    {"isupper", is_case<true>},
    {"join", join_method},
    {"ljust", escaping<pad_method<Side::left>>},
    {"lower", changed<to_lower>},
    {"lstrip", escaping<strip_method<true, false>>},
    {"maketrans", not_supported},
    {"partition", escaping<partition_method<false>>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", escaping<replace_method>},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", escaping<pad_method<Side::right>>},
    {"rpartition", escaping<partition_method<true>>},
    {"rsplit", split_method<true>},
    {"rstrip", escaping<strip_method<false, true>>},
    {"split", split_method<false>},
    {"splitlines", split_lines_method},
    {"startswith", has_affix<true>},
    {"strip", escaping<strip_method<true, true>>},
    {"swapcase", changed<swapped_case>},
    {"title", changed<to_title>},
    {"translate", not_supported},
    {"upper", changed<to_upper>},
    {"zfill", zfill},
};

}  // namespace

std::span<const Method> string_methods() {
  return methods;
}

}  // namespace moetier::jinja
