// What a mistyped word was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moetier::cli {

/// The known word that is nearest to a wrong one; empty if none is near. Dashes in front do not count, and words of
/// fewer than three letters are near to nothing.
std::string nearest_word(std::string_view wrong, const std::vector<std::string>& known);

}  // namespace moetier::cli
