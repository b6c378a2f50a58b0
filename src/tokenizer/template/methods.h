// Attributes and methods of Python's own types.
#pragma once

#include <span>
#include <string_view>

#include "tokenizer/template/object.h"
#include "tokenizer/template/value.h"

namespace moetier::jinja {

struct Method {
  std::string_view name;
  NativeMethod function;
};

std::span<const Method> string_methods();

/// The method of the value's type, bound to the value; missing if there is none.
Value method_of(const Value& self, std::string_view name);
/// getattr(value, name) before any judgement; missing for AttributeError.
Value attribute_of_type(const Value& value, std::string_view name);
/// Whether the attribute is a method that changes the value, which the immutable sandbox refuses.
bool changes(const Value& value, std::string_view name);

}  // namespace moetier::jinja
