// Pieces of GBNF text.
#pragma once

#include <string>
#include <string_view>

#include "engine/structured/char_set.h"

namespace moetier::gbnf {

/// The text as a literal, quotes included. Invalid UTF-8 becomes U+FFFD.
std::string literal(std::string_view text);
/// A set of characters as a class; sorted ranges, never negated.
std::string char_class(const CharSet& set);
/// "{m,n}" or shorter; `max` kUnbounded for none. Empty for exactly once.
std::string repetition(uint32_t min, uint32_t max);
/// The name with every character replaced that a rule's name can't have.
std::string rule_name(std::string_view text);

}  // namespace moetier::gbnf
