#include <algorithm>

#include "tokenizer/template/access.h"
#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

bool is_on(const Value& flag) {
  return !flag.is_missing() && truth(flag);
}

/// The `reverse` of sorted(), which takes nothing but integers.
bool is_reversed(const Value& flag) {
  return !flag.is_missing() && as_index(flag, "reverse must be an integer or a boolean") != 0;
}

Value attribute(Interpreter&, Arguments&& arguments) {
  auto [value, name] = bind<2>("attr", {"obj", "name"}, 2, arguments);
  if (value.is_undefined()) raise_undefined(value);
  if (!name.is_string()) raise(FaultKind::type, "attribute name must be string, not '{}'", type_name(name));
  return get_attribute_only(value, name.text());
}

Value default_value(Interpreter&, Arguments&& arguments) {
  auto [value, otherwise, boolean] = bind<3>("default", {"value", "default_value", "boolean"}, 1, arguments);
  if (value.is_undefined() || (is_on(boolean) && !truth(value))) return given_or(otherwise, Value::string(""));
  return value;
}

Value dict_sort(Interpreter&, Arguments&& arguments) {
  auto [value, case_sensitive, by, reverse] =
      bind<4>("dictsort", {"value", "case_sensitive", "by", "reverse"}, 1, arguments);
  const std::string what = by.is_missing() ? "key" : str(by);
  if (what != "key" && what != "value") {
    raise(FaultKind::argument, "You can only sort by either \"key\" or \"value\"");
  }
  if (value.is_undefined()) raise_undefined(value);
  if (!value.is(Kind::dict)) raise(FaultKind::attribute, "'{}' object has no attribute 'items'", type_name(value));
  std::vector<Value> items, keys;
  for (const auto& [key, item] : value.dict_data().entries()) {
    items.push_back(Value::tuple({key, item}));
    const Value& compared = what == "key" ? key : item;
    keys.push_back(is_on(case_sensitive) ? compared : ignoring_case(compared));
  }
  sort_by_keys(items, keys, is_reversed(reverse));
  return Value::list(std::move(items));
}

Value first(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("first", {"seq"}, 1, arguments);
  Value item;
  if (iterate(value)->next(item)) return item;
  return Value::undefined("No first item, sequence was empty.");
}

Value last(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("last", {"seq"}, 1, arguments);
  Value item;
  if (iterate_reversed(value)->next(item)) return item;
  return Value::undefined("No last item, sequence was empty.");
}

Value count(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("length", {"obj"}, 1, arguments, Naming::refused);
  return Value::integer(static_cast<Integer>(length(value)));
}

Value to_list(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("list", {"value"}, 1, arguments);
  return Value::list(collect(value));
}

Value join(Interpreter&, Arguments&& arguments) {
  auto [value, separator_value, attribute_value] = bind<3>("join", {"value", "d", "attribute"}, 1, arguments);
  const std::string separator = separator_value.is_missing() ? "" : str(separator_value);
  const AttributeGetter get(attribute_value);
  std::string out;
  bool first_item = true;
  const auto iterator = iterate(value);
  for (Value item; iterator->next(item);) {
    if (!first_item) out += separator;
    first_item = false;
    append_str(out, get(item));
    check_text_size(out.size());
  }
  return Value::string(std::move(out));
}

template <bool largest>
Value extreme(Interpreter&, Arguments&& arguments) {
  auto [value, case_sensitive, attribute_value] =
      bind<3>(largest ? "max" : "min", {"value", "case_sensitive", "attribute"}, 1, arguments);
  const auto iterator = iterate(value);
  Value best, item;
  if (!iterator->next(best)) return Value::undefined("No aggregated item, sequence was empty.");
  const AttributeGetter get(attribute_value);
  const bool as_is = is_on(case_sensitive);
  const auto key_of = [&](const Value& v) { return as_is ? get(v) : ignoring_case(get(v)); };
  Value best_key = key_of(best);
  while (iterator->next(item)) {
    const Value key = key_of(item);
    if (ordered(largest ? Comparison::greater : Comparison::less, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Value sort(Interpreter&, Arguments&& arguments) {
  auto [value, reverse, case_sensitive, attribute_value] =
      bind<4>("sort", {"value", "reverse", "case_sensitive", "attribute"}, 1, arguments);
  std::vector<AttributeGetter> getters;
  if (attribute_value.is_string()) {
    std::string_view rest = attribute_value.text();
    while (true) {  // "age,name": by one after the other
      const size_t comma = rest.find(',');
      getters.emplace_back(Value::string(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    getters.emplace_back(attribute_value);
  }
  std::vector<Value> items = collect(value), keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    key.reserve(getters.size());
    for (const AttributeGetter& get : getters)
      key.push_back(is_on(case_sensitive) ? get(item) : ignoring_case(get(item)));
    keys.push_back(Value::list(std::move(key)));
  }
  sort_by_keys(items, keys, is_reversed(reverse));
  return Value::list(std::move(items));
}

Value sum(Interpreter&, Arguments&& arguments) {
  auto [value, attribute_value, start] = bind<3>("sum", {"iterable", "attribute", "start"}, 1, arguments);
  const AttributeGetter get(attribute_value);
  const auto iterator = iterate(value);
  Value total = given_or(start, Value::integer(0));
  if (total.is_string()) raise(FaultKind::type, "sum() can't sum strings [use ''.join(seq) instead]");
  for (Value item; iterator->next(item);) total = apply(Operator::add, total, get(item));
  return total;
}

Value group_by(Interpreter&, Arguments&& arguments) {
  auto [value, attribute_value, otherwise, case_sensitive] =
      bind<4>("groupby", {"value", "attribute", "default", "case_sensitive"}, 2, arguments);
  const AttributeGetter get(attribute_value, otherwise);
  const bool as_is = is_on(case_sensitive);
  const auto key_of = [&](const Value& item) { return as_is ? get(item) : ignoring_case(get(item)); };
  std::vector<Value> items = collect(value), keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  sort_by_keys(items, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    const Value key = key_of(items[begin]);
    size_t end = begin + 1;
    while (end < items.size() && equal(key, key_of(items[end]))) ++end;
    std::vector<Value> members(items.begin() + static_cast<ptrdiff_t>(begin),
                               items.begin() + static_cast<ptrdiff_t>(end));
    groups.push_back(
        Value::named_tuple({as_is ? key : get(items[begin]), Value::list(std::move(members))}, {"grouper", "list"}));
    begin = end;
  }
  return Value::list(std::move(groups));
}

Value with_sorted_keys(const Value& value) {
  const Level level;
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) items.push_back(with_sorted_keys(item));
    return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (!value.is(Kind::dict)) return value;
  std::vector<Value> entries, keys;
  for (const auto& [key, item] : value.dict_data().entries()) {
    entries.push_back(Value::tuple({key, with_sorted_keys(item)}));
    keys.push_back(key);
  }
  sort_by_keys(entries, keys, false);
  auto sorted = std::make_shared<DictData>();
  for (const Value& entry : entries) sorted->set(entry.items()[0], entry.items()[1]);
  return Value::dict(std::move(sorted));
}

Value pretty_print(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("pprint", {"value"}, 1, arguments);
  std::string text = repr(with_sorted_keys(value));
  if (count_code_points(text) > 80) {
    raise(FaultKind::unsupported, "pprint of a value wider than 80 columns is not supported; use tojson(indent=2)");
  }
  return Value::string(std::move(text));
}

Value refuse_random(Interpreter&, Arguments&&) {
  raise(FaultKind::unsupported, "the filter random is refused, since a template must render alike every time");
}

constexpr NamedFunction filters[] = {{"attr", attribute},
                                     {"count", count},
                                     {"d", default_value},
                                     {"default", default_value},
                                     {"dictsort", dict_sort},
                                     {"first", first},
                                     {"groupby", group_by},
                                     {"join", join},
                                     {"last", last},
                                     {"length", count},
                                     {"list", to_list},
                                     {"max", extreme<true>},
                                     {"min", extreme<false>},
                                     {"pprint", pretty_print},
                                     {"random", refuse_random},
                                     {"sort", sort},
                                     {"sum", sum}};

}  // namespace

std::span<const NamedFunction> sequence_filters() {
  return filters;
}

}  // namespace moetier::jinja
