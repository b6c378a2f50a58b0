#include "tokenizer/template/access.h"

#include <algorithm>
#include <array>

#include "tokenizer/template/methods.h"
#include "tokenizer/template/object.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

/// Attributes that every Python object has, and those of containers: there, but out of bounds.
bool is_dunder(std::string_view name) {
  static constexpr std::array<std::string_view, 36> names = {
      "__class__",    "__contains__", "__delattr__", "__delitem__",   "__dict__",          "__dir__",
      "__doc__",      "__eq__",       "__format__",  "__ge__",        "__getattribute__",  "__getitem__",
      "__getstate__", "__gt__",       "__hash__",    "__init__",      "__init_subclass__", "__iter__",
      "__le__",       "__len__",      "__lt__",      "__module__",    "__mul__",           "__ne__",
      "__new__",      "__or__",       "__reduce__",  "__reduce_ex__", "__repr__",          "__reversed__",
      "__setattr__",  "__setitem__",  "__sizeof__",  "__str__",       "__subclasshook__",  "__weakref__"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value undefined_of(const Value& object, const Value& key) {
  if (key.is_string()) {
    return Value::undefined(fmt::format("{} has no attribute {}", repr_of_text(type_description(object)), repr(key)));
  }
  return Value::undefined(fmt::format("{} has no element {}", type_description(object), repr(key)));
}

Value unsafe_of(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute {} of {} object is unsafe.", repr_of_text(name),
                                      repr_of_text(type_name(object))),
                          FaultKind::security);
}

/// getattr(object, name) with the sandbox's judgement; missing for AttributeError.
Value attribute_of(const Value& object, std::string_view name) {
  if (object.is_undefined()) raise_undefined(object);
  if (!name.empty() && name.front() == '_') {
    const bool exists = is_dunder(name) || !attribute_of_type(object, name).is_missing();
    return exists ? unsafe_of(object, name) : Value::missing();
  }
  if (changes(object, name)) return unsafe_of(object, name);
  return attribute_of_type(object, name);
}

Value at_index(const Value& object, Integer index, size_t length) {
  if (index < 0) index += static_cast<Integer>(length);
  if (index < 0 || index >= static_cast<Integer>(length)) return Value::missing();
  const auto at = static_cast<size_t>(index);
  if (object.is_sequence()) return object.items()[at];
  return Value::string(std::string(substring(object, at, 1)), object.is_safe());
}

}  // namespace

Value plain_item(const Value& object, const Value& key) {
  if (object.is_undefined()) raise_undefined(object);
  if (object.is(Kind::dict)) {
    if (key.is_string()) {
      const Value* found = object.dict_data().find(key.text());
      return found != nullptr ? *found : Value::missing();
    }
    try {
      const Value* found = object.dict_data().find(key);
      return found != nullptr ? *found : Value::missing();
    } catch (const Fault& fault) {
      if (fault.kind() != FaultKind::type) throw;
      return Value::missing();  // unhashable
    }
  }
  if (object.is_sequence() || object.is_string()) {
    if (!key.is_integer()) return Value::missing();
    return at_index(object, key.as_integer(), length(object));
  }
  return object.is(Kind::object) ? object.as_object().item(key) : Value::missing();
}

Value get_attribute(const Value& object, std::string_view name) {
  Value value = attribute_of(object, name);
  if (!value.is_missing()) return value;
  const Value key = Value::string(std::string(name));
  value = plain_item(object, key);
  return value.is_missing() ? undefined_of(object, key) : value;
}

Value get_item(const Value& object, const Value& key) {
  Value value = plain_item(object, key);
  if (value.is_missing() && key.is_string()) value = attribute_of(object, key.text());
  return value.is_missing() ? undefined_of(object, key) : value;
}

Value get_attribute_only(const Value& object, std::string_view name) {
  const Value value = attribute_of(object, name);
  return value.is_missing() ? undefined_of(object, Value::string(std::string(name))) : value;
}

}  // namespace moetier::jinja
