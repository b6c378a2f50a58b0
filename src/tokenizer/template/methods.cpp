#include "tokenizer/template/methods.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/operators.h"

namespace moetier::jinja {
namespace {

Value count_items(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [wanted] = bind<1>("count", {"value"}, 1, arguments, Naming::refused);
  Integer count = 0;
  const auto iterator = iterate(self);
  for (Value item; iterator->next(item);) count += item.same_as(wanted) || equal(item, wanted) ? 1 : 0;
  return Value::integer(count);
}

Value index_of_item(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [wanted, start, stop] = bind<3>("index", {"value", "start", "stop"}, 1, arguments, Naming::refused);
  const SliceBounds bounds = slice_bounds(start, stop, Value::missing(), length(self));
  const auto iterator = iterate(self);
  int64_t at = 0;
  for (Value item; at < bounds.stop && iterator->next(item); ++at) {
    if (at >= bounds.start && (item.same_as(wanted) || equal(item, wanted))) return Value::integer(at);
  }
  raise(FaultKind::value, "the value is not in the {}", type_name(self));
}

Value copy_of(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("copy", arguments);
  if (self.is(Kind::list)) return Value::list(self.items());
  auto dict = std::make_shared<DictData>();
  for (const auto& [key, value] : self.dict_data().entries()) dict->set(key, value);
  return Value::dict(std::move(dict));
}

Value dict_get(Interpreter&, const Value& self, Arguments&& arguments) {
  auto [key, otherwise] = bind<2>("get", {"key", "default"}, 1, arguments, Naming::refused);
  const Value* found = self.dict_data().find(key);
  return found != nullptr ? *found : given_or(otherwise, Value::none());
}

template <DictView::Part part>
Value dict_view(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("the method", arguments);
  return Value::object(std::make_shared<DictView>(self, part));
}

Value dict_from_keys(Interpreter&, const Value&, Arguments&& arguments) {
  auto [keys, value] = bind<2>("fromkeys", {"iterable", "value"}, 1, arguments, Naming::refused);
  auto dict = std::make_shared<DictData>();
  const auto iterator = iterate(keys);
  for (Value key; iterator->next(key);) dict->set(key, given_or(value, Value::none()));
  return Value::dict(std::move(dict));
}

/// Never called: the sandbox refuses the method before.
Value refused(Interpreter&, const Value& self, Arguments&&) {
  raise(FaultKind::security, "a method that changes a {} is refused", type_name(self));
}

Value is_whole(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("is_integer", arguments);
  return Value::boolean(std::isfinite(self.as_real()) && std::trunc(self.as_real()) == self.as_real());
}

Value conjugate(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing("conjugate", arguments);
  return plus(self);
}

template <bool count_ones>
Value count_bits(Interpreter&, const Value& self, Arguments&& arguments) {
  bind_nothing(count_ones ? "bit_count" : "bit_length", arguments);
  __extension__ typedef unsigned __int128 Unsigned;
  const Integer value = self.as_integer();
  Unsigned rest = value < 0 ? -static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  Integer bits = 0;
  for (; rest != 0; rest >>= 1) bits += count_ones ? static_cast<Integer>(rest & 1) : 1;
  return Value::integer(bits);
}

constexpr Method lists[] = {{"append", refused}, {"clear", refused},       {"copy", copy_of},   {"count", count_items},
                            {"extend", refused}, {"index", index_of_item}, {"insert", refused}, {"pop", refused},
                            {"remove", refused}, {"reverse", refused},     {"sort", refused}};
constexpr Method tuples[] = {{"count", count_items}, {"index", index_of_item}};
constexpr Method dicts[] = {{"clear", refused},
                            {"copy", copy_of},
                            {"fromkeys", dict_from_keys},
                            {"get", dict_get},
                            {"items", dict_view<DictView::Part::items>},
                            {"keys", dict_view<DictView::Part::keys>},
                            {"pop", refused},
                            {"popitem", refused},
                            {"setdefault", refused},
                            {"update", refused},
                            {"values", dict_view<DictView::Part::values>}};
constexpr Method integers[] = {
    {"bit_count", count_bits<true>}, {"bit_length", count_bits<false>}, {"conjugate", conjugate}};
constexpr Method reals[] = {{"conjugate", conjugate}, {"is_integer", is_whole}};

std::span<const Method> methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      return string_methods();
    case Kind::list:
      return lists;
    case Kind::tuple:
      return tuples;
    case Kind::dict:
      return dicts;
    case Kind::boolean:
    case Kind::integer:
      return integers;
    case Kind::real:
      return reals;
    case Kind::object:
      if (value.object_as<Range>() != nullptr) return tuples;
      return {};
    default:
      return {};
  }
}

Value number_attribute(const Value& value, std::string_view name) {
  const bool whole = value.is_integer();
  if (name == "real" || (whole && name == "numerator")) return plus(value);
  if (name == "imag") return whole ? Value::integer(0) : Value::real(0);
  if (whole && name == "denominator") return Value::integer(1);
  return Value::missing();
}

}  // namespace

Value method_of(const Value& self, std::string_view name) {
  for (const Method& method : methods_of(self)) {
    if (method.name == name) return Value::object(std::make_shared<BoundMethod>(self, method.name, method.function));
  }
  return Value::missing();
}

Value attribute_of_type(const Value& value, std::string_view name) {
  if (value.is(Kind::object)) return value.as_object().attribute(name);
  if (value.is(Kind::tuple)) {
    const auto& names = value.sequence().names;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return value.items()[static_cast<size_t>(found - names.begin())];
  }
  if (value.is_number()) {
    Value attribute = number_attribute(value, name);
    if (!attribute.is_missing()) return attribute;
  }
  return method_of(value, name);
}

bool changes(const Value& value, std::string_view name) {
  if (!value.is(Kind::list) && !value.is(Kind::dict)) return false;
  const auto methods = methods_of(value);
  return std::any_of(methods.begin(), methods.end(),
                     [&](const Method& method) { return method.name == name && method.function == refused; });
}

}  // namespace moetier::jinja
