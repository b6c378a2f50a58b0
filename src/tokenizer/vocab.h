// The token table of a model: texts, kinds, scores and the special ids.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// What a file says about its tokenizer (`tokenizer.ggml.*`), before any of it is believed.
struct VocabSource {
  std::string file = "vocabulary";  ///< named in errors
  std::string model_name;           ///< general.name
  std::string model;                ///< tokenizer.ggml.model
  std::string pre;                  ///< tokenizer.ggml.pre, empty if absent
  std::vector<std::string> tokens;
  std::vector<float> scores;                         ///< empty if absent
  std::vector<int64_t> types;                        ///< empty if absent
  const std::vector<std::string>* merges = nullptr;  ///< "LEFT RIGHT", in rank order; not owned; nullptr if absent
  std::map<std::string, int64_t, std::less<>> ids;   ///< `eos` for tokenizer.ggml.eos_token_id, and so on
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::vector<int64_t> suppressed;
  std::string chat_template;
};

/// Reads what VocabSource lists; errors name the file and the key. What is not owned lives as long as `file`.
VocabSource read_vocab_source(const GgufFile& file);

/// How text becomes tokens.
enum class VocabModel {
  spm,             ///< SentencePiece: merges by score, spaces written as U+2581
  byte_level_bpe,  ///< merges by rank over bytes, each written as a printable stand-in character
  raw_bpe,         ///< merges by rank over UTF-8 characters, spaces written as U+2581 (gemma 4)
};

/// Properties of a token; several may hold at once (a file may call a token user-defined that is also known to end a
/// turn).
enum TokenFlag : uint8_t {
  kTokenNormal = 1,
  kTokenUnknown = 2,
  kTokenControl = 4,
  kTokenUserDefined = 8,
  kTokenUnused = 16,
  kTokenByte = 32,
  kTokenStripRight = 64,  ///< swallows the white space that follows it in a text
};

/// The checked table, with the fix-ups of fixups.h applied. Neither copied nor moved: the index points into `texts`.
struct Vocab {
  Vocab() = default;
  Vocab(const Vocab&) = delete;
  Vocab& operator=(const Vocab&) = delete;

  VocabModel model = VocabModel::spm;
  std::vector<std::string> texts;
  std::vector<float> scores;   ///< one per token, never NaN
  std::vector<uint8_t> flags;  ///< TokenFlag bits, one per token
  TokenIndex index{texts};
  TokenId bos = -1, eos = -1, eot = -1, eom = -1, unknown = -1;
  TokenId fim_pad = -1, fim_repo = -1, fim_separator = -1;
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = false;  ///< a space stands before the text and after a special token
  bool clean_spaces = false;      ///< see clean_up_spaces
  bool ignore_merges = false;     ///< a word that is a token needs no merges
  std::vector<bool> ends_generation;
  std::vector<TokenId> suppressed;
  std::string chat_template;

  int32_t size() const { return static_cast<int32_t>(texts.size()); }
  bool has(int64_t id) const { return id >= 0 && id < size(); }
  bool is(TokenId id, int flag_bits) const { return (flags[static_cast<size_t>(id)] & flag_bits) != 0; }
  TokenId find(std::string_view text) const { return index.find(text); }
  /// The token of one raw byte, written `<0xXX>`; -1 if the vocabulary lacks it.
  TokenId find_byte(uint8_t byte) const;
};

/// Builds the table from `source`, whose big arrays move into it. Errors: no tokens, a text twice, arrays of another
/// length, an unknown model. `pre` must already have set what a pre-tokenizer decides (see Pretokenizer).
void fill_vocab(Vocab& vocab, VocabSource& source);

/// The byte that `<0xXX>` stands for, or -1 if `text` is not written so.
int byte_of_token_text(std::string_view text);

}  // namespace moetier
