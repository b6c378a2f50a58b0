// The bytes of a vocabulary's tokens, as a trie laid out for walks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar.h"

namespace moetier {

/// Texts of tokens. Nodes in depth-first order, bytes ascending: what lies below a node follows it.
struct TokenTrie {
  struct Node {
    uint32_t skip = 1;   ///< nodes of its subtree, itself included
    uint32_t first = 0;  ///< its tokens are sorted[first] up to the next node's `first`
    uint16_t depth = 0;  ///< bytes from the root; the root, node 0, has none
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;      ///< and one behind the last, for `first`
  std::vector<TokenId> sorted;  ///< tokens by their bytes
};

struct GrammarVocabulary::Impl {
  static constexpr size_t kLongest = 4096;  ///< a token of more bytes is never allowed

  int32_t size = 0;            ///< tokens, with and without text
  TokenTrie text, control;     ///< those that have a text; control tokens by themselves
  std::vector<bool> ends;      ///< [size]: ends the generation
  std::vector<bool> controls;  ///< [size]: in `control`
  std::vector<TokenId> end_tokens;
  size_t longest = 0;                ///< bytes of the longest token
  std::string bytes;                 ///< all texts
  std::vector<uint64_t> text_begin;  ///< [size + 1]: in `bytes`

  std::string_view text_of(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes).substr(text_begin[i], text_begin[i + 1] - text_begin[i]);
  }
};

}  // namespace moetier
