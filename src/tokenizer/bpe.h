// Byte-pair encoding: the adjacent pair with the lowest merge rank merges first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/space_borders.h"
#include "tokenizer/vocab.h"

namespace moetier {

/// The byte-level alphabet of GPT-2: each byte has a printable character that stands for it in token texts. Bytes
/// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points); the other 68, in order, are U+0100 and on.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();
  /// The UTF-8 text of the character that stands for a byte.
  const std::string& stand_in(uint8_t byte) const { return stand_ins_[byte]; }
  /// The bytes that a token text stands for; what is no stand-in is kept as it is.
  std::string to_bytes(std::string_view token_text) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> stand_ins_;
  std::array<int16_t, 324> bytes_;  ///< by code point; -1 if none
};

/// The merges of one vocabulary. Immutable, and safe from many threads.
class BpeMerger {
 public:
  BpeMerger(const BpeMerger&) = delete;
  BpeMerger& operator=(const BpeMerger&) = delete;
  /// `merges` are "LEFT RIGHT" texts in rank order. Their parts need not be tokens. One without a space between two
  /// parts is an error.
  BpeMerger(const Vocab& vocab, const std::vector<std::string>& merges, const std::string& file);

  /// Working memory that a caller keeps from word to word.
  struct Scratch {
    struct Symbol {
      int32_t
          id;  ///< of the text it covers; kNoSymbol if no merge knows it; kMerged once it is part of its left neighbour
      int32_t previous, next;
      uint32_t begin, end;  ///< bytes of the word
    };
    struct Candidate {
      uint64_t order;  ///< rank, then place of the left symbol
      int32_t left_id, right_id;
      bool operator>(const Candidate& other) const { return order > other.order; }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
    std::string text;
  };

  /// Appends the tokens of one word. O(n log n) in its length.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  /// Where words of raw UTF-8 may be cut further.
  const SpaceBorders& borders() const { return borders_; }

 private:
  static constexpr int32_t kNoSymbol = -1;
  static constexpr int32_t kMerged = -2;
  struct Merge {
    int32_t right;
    int32_t rank;
    int32_t result;
  };

  int32_t symbol_of(std::string_view text) const;
  const Merge* find_merge(int32_t left, int32_t right) const;
  void start_symbols(std::string_view word, Scratch& scratch) const;
  void consider(Scratch& scratch, int32_t left) const;
  void merge_all(Scratch& scratch) const;
  void emit(std::string_view word, const Scratch::Symbol& symbol, std::vector<TokenId>& out) const;
  bool emit_whole(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  const Vocab& vocab_;
  bool raw_;
  // Parts of merges that are no tokens; their symbols are numbered after the tokens.
  std::vector<std::string> extra_texts_;
  TokenIndex extra_{extra_texts_};
  std::array<int32_t, 256> byte_symbol_;  ///< byte-level: the symbol of each byte's stand-in
  std::array<TokenId, 256> byte_token_;   ///< the token that falls back for each byte, -1 if the vocabulary lacks it
  std::vector<uint32_t> first_;  ///< merges of left symbol s: merges_[first_[s]] up to first_[s + 1], by right symbol
  std::vector<Merge> merges_;
  SpaceBorders borders_;
};

}  // namespace moetier
