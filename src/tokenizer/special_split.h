// Finds the special tokens that stand in a text, before the text between them is tokenized.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace moetier {

/// A special token, or the raw text between two.
struct TextFragment {
  TokenId token = -1;  ///< -1: raw text
  size_t begin = 0, end = 0;
};

/// Immutable, and safe from many threads.
class SpecialSplitter {
 public:
  /// Knows the control, unknown and user-defined tokens of `vocab`, which must outlive it.
  explicit SpecialSplitter(const Vocab& vocab);

  /// Cuts `text` (architectures.md, 5.4): the longest token first, all its occurrences from left to right, whatever
  /// lies where a shorter one would begin. With `parse_special` off only tokens that are user-defined and nothing else
  /// are cut out.
  std::vector<TextFragment> split(std::string_view text, bool parse_special) const;

 private:
  std::vector<size_t> present(std::string_view text, bool parse_special) const;
  std::vector<TextFragment> cut(std::string_view text, const std::vector<TextFragment>& fragments, TokenId token) const;

  const Vocab& vocab_;
  std::vector<TokenId> by_text_;  ///< sorted by text, so that a shared beginning is a range
  std::array<uint32_t, 257>
      by_first_{};  ///< by_text_ of texts that begin with byte b: from by_first_[b] up to by_first_[b + 1]
};

}  // namespace moetier
