// The one implementation of Tokenizer: a checked vocabulary and the algorithm it asks for.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_split.h"
#include "tokenizer/spm.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

namespace moetier {

class GgufTokenizer final : public Tokenizer {
 public:
  /// Checks everything in `source`; errors name its file.
  explicit GgufTokenizer(VocabSource source);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string piece(TokenId id, bool special) const override;
  std::string decode(std::span<const TokenId> ids, bool special) const override;
  bool clean_spaces() const override { return vocab_.clean_spaces; }

  int32_t vocab_size() const override { return vocab_.size(); }
  TokenId bos() const override { return vocab_.bos; }
  TokenId eos() const override { return vocab_.eos; }
  bool add_bos() const override { return vocab_.add_bos; }
  bool is_end_of_generation(TokenId id) const override;
  bool is_control(TokenId id) const override;
  const std::string& text(TokenId id) const override;
  TokenId find(std::string_view text) const override { return vocab_.find(text); }
  const std::string& chat_template() const override { return vocab_.chat_template; }
  std::span<const TokenId> suppressed() const override { return vocab_.suppressed; }

 private:
  std::vector<TextSpan> cut_words(std::string_view text) const;
  void encode_raw(std::string_view text, bool space_before, std::vector<TokenId>& out) const;
  size_t checked(TokenId id) const;

  std::string file_;
  Vocab vocab_;
  std::optional<SpecialSplitter> special_;
  std::optional<SpmMerger> spm_;
  std::optional<BpeMerger> bpe_;
  std::optional<Pretokenizer> words_;
};

}  // namespace moetier
