// Python's three ways to format: `%`, format() with its specification language, and str.format.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/template/object.h"
#include "tokenizer/template/value.h"

namespace moetier::jinja {

/// text % values. Of a safe text, what is inserted is escaped.
Value percent_formatted(const Value& text, const Value& values);

/// format(value, specification)
std::string formatted(const Value& value, std::string_view specification);

/// text.format(*positional, **named), through the sandbox's access to attributes. Of a safe text, what is inserted is
/// escaped.
Value brace_formatted(const Value& text, const Arguments& arguments);

/// A double as C's printf writes it with type e, f, g, E, F or G; `alternate` is the flag #. No sign for positive
/// numbers.
std::string real_formatted(double value, char type, int precision, bool alternate);

/// round(value, digits) of a double: correctly rounded decimal, halves to even.
double rounded(double value, Integer digits);

}  // namespace moetier::jinja
