// The bytes of a vocabulary's tokens, as a trie laid out for walks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar.h"

namespace moetier {

/// Nodes in depth-first order, bytes ascending: what lies below a node follows it.
struct GrammarVocabulary::Impl {
  struct Node {
    uint32_t skip = 1;   ///< nodes of its subtree, itself included
    uint32_t first = 0;  ///< its tokens are sorted[first] up to the next node's `first`
    uint16_t depth = 0;  ///< bytes from the root; the root, node 0, has none
    uint8_t byte = 0;
  };
  static constexpr size_t kLongest = 4096;  ///< a token of more bytes is never allowed

  int32_t size = 0;             ///< tokens, with and without text
  std::vector<Node> nodes;      ///< and one behind the last, for `first`
  std::vector<TokenId> sorted;  ///< tokens that have a text, by their bytes
  std::vector<bool> ends;       ///< [size]: ends the generation
  std::vector<TokenId> end_tokens;
  size_t longest = 0;                ///< bytes of the longest token
  std::string bytes;                 ///< all texts
  std::vector<uint64_t> text_begin;  ///< [size + 1]: in `bytes`

  std::string_view text(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes).substr(text_begin[i], text_begin[i + 1] - text_begin[i]);
  }
};

}  // namespace moetier
