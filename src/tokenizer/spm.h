// SentencePiece's score merging: the adjacent pair that is the token with the highest score merges first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/space_borders.h"
#include "tokenizer/vocab.h"

namespace moetier {

/// Merges for one vocabulary. Immutable, and safe from many threads.
class SpmMerger {
 public:
  SpmMerger(const Vocab& vocab, const std::string& file);

  /// Working memory that a caller keeps from word to word.
  struct Scratch {
    struct Symbol {
      uint32_t begin, bytes;  ///< bytes is 0 once it is part of its left neighbour
      int32_t previous, next;
      TokenId token;  ///< kUnread until it is looked up
    };
    struct Candidate {
      uint64_t order;  ///< descending score, then place of the left symbol
      uint32_t bytes;  ///< of both symbols together; they have grown since if this no longer fits
      TokenId token;
      bool operator>(const Candidate& other) const { return order > other.order; }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  /// Appends the tokens of `word`, whose spaces are already U+2581. O(n log n) in its length, which is under 2^31
  /// bytes.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  /// Where a text may be cut into words.
  const SpaceBorders& borders() const { return borders_; }

 private:
  static constexpr TokenId kUnread = -2;

  void start_symbols(std::string_view word, Scratch& scratch) const;
  void consider(std::string_view word, Scratch& scratch, int32_t left) const;
  void merge_all(std::string_view word, Scratch& scratch) const;
  void emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

  const Vocab& vocab_;
  size_t longest_ = 0;                 ///< bytes of the longest token
  std::vector<uint32_t> score_order_;  ///< per token; the higher the score, the smaller
  std::vector<TokenId> byte_token_;    ///< per byte, -1 if the vocabulary lacks it
  SpaceBorders borders_;
};

}  // namespace moetier
