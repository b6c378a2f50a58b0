// From a text to the token that is written so.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace moetier {

/// Hashes texts with a seed of this process, so that a file can't be made whose tokens all collide.
struct SeededTextHash {
  size_t operator()(std::string_view text) const;
};

/// The texts are views: whoever fills the index keeps them alive and in place.
using TokenIndex = std::unordered_map<std::string_view, int32_t, SeededTextHash>;

/// The id of `text`, or -1.
inline int32_t find_token(const TokenIndex& index, std::string_view text) {
  const auto found = index.find(text);
  return found == index.end() ? -1 : found->second;
}

}  // namespace moetier
