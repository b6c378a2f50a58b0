// Binding a call's arguments to a function's parameters.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tokenizer/template/object.h"

namespace moetier::jinja {

/// Whether parameters may be given by name; Python's built-in methods mostly refuse that.
enum class Naming { allowed, refused };

/// The general form of bind(): fills `out[count]`, missing where nothing was given.
void bind_arguments(std::string_view function, const std::string_view* names, size_t count, size_t required,
                    Arguments& arguments, Naming naming, Value* out);

/// The arguments in the order of `names`, the first `required` of which must be given; missing where one was not.
/// Wrong arguments are a `type` fault, as in Python.
template <size_t N>
std::array<Value, N> bind(std::string_view function, const std::array<std::string_view, N>& names, size_t required,
                          Arguments& arguments, Naming naming = Naming::allowed) {
  std::array<Value, N> out;
  bind_arguments(function, names.data(), N, required, arguments, naming, out.data());
  return out;
}

/// Raises unless there are no arguments.
void bind_nothing(std::string_view function, Arguments& arguments);

/// The value, or `otherwise` if it is missing.
inline const Value& given_or(const Value& value, const Value& otherwise) {
  return value.is_missing() ? otherwise : value;
}

}  // namespace moetier::jinja
