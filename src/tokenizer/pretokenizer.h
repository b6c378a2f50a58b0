// Cuts text into words before byte-pair merging: merges never cross the border of a word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_span.h"

namespace moetier {

/// The sets of patterns in use. A set's patterns are applied in order, each one cutting anew every piece made so far.
enum class PatternSet {
  fallback,
  gpt2,
  starcoder,
  llama3,
  qwen2,
  qwen35,
  gpt4o,
  deepseek_llm,
  deepseek_coder,
  deepseek3,
  bailing,
  tekken,
  kimi_k2,
  gemma4,
};

/// The patterns of a set, in the dialect of PCRE2, save that `\s` and `\S` mean Unicode's White_Space and are expanded
/// before use.
std::vector<std::string> patterns_of(PatternSet set);

/// What one value of `tokenizer.ggml.pre` stands for (architectures.md, 5.8).
struct PretokenizerInfo {
  PatternSet set = PatternSet::fallback;
  bool clean_spaces = true;     ///< see clean_up_spaces
  bool ignore_merges = false;   ///< a word that is a token needs no merges
  bool add_bos = false;         ///< unless the file says otherwise
  bool no_default_bos = false;  ///< without a bos id in the file there is none
  bool raw_utf8 = false;        ///< merges work on UTF-8 characters, not on bytes
};

/// The entry for a name; the empty name is the fallback. An unknown one is an error that names it, names `file` and
/// lists the known ones.
const PretokenizerInfo& find_pretokenizer(std::string_view name, std::string_view file);

/// A compiled set. Immutable, and safe from many threads.
class Pretokenizer {
 public:
  explicit Pretokenizer(PatternSet set);
  ~Pretokenizer();
  Pretokenizer(const Pretokenizer&) = delete;
  Pretokenizer& operator=(const Pretokenizer&) = delete;

  /// The words of `text`, in order, without a gap: what no pattern matches becomes words too. Bytes that are not valid
  /// UTF-8 (each longest run of them) are a word of their own, and the patterns see the text before and after as if it
  /// ended and began there. Time is linear in the text for all sets. `text` is under 2^31 bytes.
  void split(std::string_view text, std::vector<TextSpan>& words) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
