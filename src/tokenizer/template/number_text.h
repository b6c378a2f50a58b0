// Numbers from text, as Python's int() and float() read them.
#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

/// int(text, base); empty where Python raises ValueError. Too big for 128 bits is an `overflow` fault.
std::optional<Integer> parse_integer(std::string_view text, Integer base);
/// float(text); empty where Python raises ValueError.
std::optional<double> parse_real(std::string_view text);

}  // namespace moetier::jinja
