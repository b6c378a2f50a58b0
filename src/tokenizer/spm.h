// SentencePiece's score merging: the adjacent pair that is the token with the highest score merges first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace moetier {

/// Merges for one vocabulary. Immutable, and safe from many threads.
class SpmMerger {
 public:
  SpmMerger(const Vocab& vocab, const std::string& file);

  /// Appends the tokens of `text`, whose spaces are already U+2581. O(n log n) in its length, which is under 2^31
  /// bytes.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  struct Work;
  void consider(Work& work, int32_t left) const;
  void start_symbols(Work& work) const;
  void merge_all(Work& work) const;
  void emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

  const Vocab& vocab_;
  size_t longest_ = 0;                 ///< bytes of the longest token
  std::vector<uint32_t> score_order_;  ///< per token; the higher the score, the smaller
  std::vector<TokenId> byte_token_;    ///< per byte, -1 if the vocabulary lacks it
};

}  // namespace moetier
