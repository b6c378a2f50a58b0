// Characters that are younger than the Unicode tables of the PCRE2 we build on.
#pragma once

#include <cstdint>

namespace moetier {

/// PCRE2 10.42 knows Unicode 14. For a character that Unicode 15.0 or 15.1 added this is one of Unicode 14 with the
/// same general category, of the same length in UTF-8, and Han exactly if the other is; for all other characters it is
/// the character itself. So a text is cut into words alike whichever PCRE2 the machine has, and new emoji are symbols.
char32_t older_stand_in(char32_t code);

}  // namespace moetier
