// Regular expressions of JSON schemas as GBNF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moetier {

/// Lengths that a string may have, in characters; max kUnbounded: any.
struct LengthBounds {
  uint32_t min = 0, max = UINT32_MAX;
};

/// How a string is written.
struct StringForm {
  std::string quote = "\"\\\"\"";  ///< expression of what stands on both sides
  bool escapes = true;             ///< as JSON has them
  char32_t never = 0;              ///< a character that no string holds; 0 = none
};

/// A GBNF expression for strings, quotes included, whose value matches the pattern (anywhere, unless ^ and $ say
/// otherwise) and has a length within the bounds. `any_char` names the rule for one character inside a string.
///
/// Taken: characters, . (not a line break), classes, \d \w \s and their negations, \t \n \r \f \v \0, \xHH, \uHHHH,
/// \u{H...}, \cX, escaped punctuation, groups (also (?:...) and named ones), |, * + ? {m,n} (lazy forms too), ^ at the
/// beginning and $ at the end of an alternative. Errors (usage, "the pattern '...' ..."): what is not taken
/// (look-ahead, back-references, \b, \p, anchors elsewhere), mistakes, a character that the form never has,
/// and length bounds that the pattern does not keep by itself (unless it is one class repeated).
std::string pattern_grammar(std::string_view pattern, const LengthBounds& bounds, const std::string& any_char,
                            const StringForm& form = {});

}  // namespace moetier
