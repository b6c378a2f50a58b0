// jinja2's filters and tests. The value comes as the first argument.
#pragma once

#include <span>
#include <string_view>

#include "tokenizer/template/object.h"

namespace moetier::jinja {

struct NamedFunction {
  std::string_view name;
  NativeFunction function;
};

/// Null if there is none of that name.
NativeFunction find_filter(std::string_view name);
NativeFunction find_test(std::string_view name);

// The parts of the filter table, one a file.
std::span<const NamedFunction> text_filters();
std::span<const NamedFunction> html_filters();
std::span<const NamedFunction> number_filters();
std::span<const NamedFunction> sequence_filters();
std::span<const NamedFunction> lazy_filters();  ///< those that give generators
std::span<const NamedFunction> tests();

/// Looks up "a.b.0" in a value as `map(attribute=...)` does: items before attributes, numbers as indices.
class AttributeGetter {
 public:
  /// `attribute` None or missing gives the value itself; an undefined part becomes `otherwise` unless that is missing
  /// or None.
  explicit AttributeGetter(const Value& attribute, Value otherwise = Value::missing());
  Value operator()(const Value& item) const;

 private:
  std::vector<Value> parts_;
  Value otherwise_;
};

/// A string in lower case, anything else as it is: how filters compare without case.
Value ignoring_case(const Value& value);

}  // namespace moetier::jinja
