// Where a text whose spaces are written as U+2581 falls apart into pieces that merge on their own.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/text_span.h"

namespace moetier {

/// The character that stands for a space in token texts.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// A merge across the border between X and U+2581 makes a text with X before U+2581 in its middle. Where no merge of a
/// vocabulary makes one, both sides merge independently, so cutting there changes no token and keeps the pieces as
/// short as words.
class SpaceBorders {
 public:
  /// Takes note of a text that merging can make.
  void learn(std::string_view text);
  /// Appends the pieces of `text`, each as a part of the whole that starts at `offset`.
  void cut(std::string_view text, uint32_t offset, std::vector<TextSpan>& out) const;

 private:
  std::bitset<256> joined_;  ///< last bytes of the characters that some text has before an inner U+2581
};

}  // namespace moetier
