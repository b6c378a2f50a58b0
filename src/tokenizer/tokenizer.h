// Text to token ids and back, from the vocabulary in a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"

namespace moetier {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;    ///< put BOS/EOS where the model wants them
  bool parse_special = true;  ///< recognise control tokens in the text (user-defined ones always are)
};

/// Immutable after load, and safe from many threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Reads `tokenizer.ggml.*`. An unknown model or pre-tokenizer is an error that names it and lists the known ones.
  static std::unique_ptr<Tokenizer> load(const GgufFile& file);

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// The raw bytes that one token stands for; may be part of a UTF-8 character. Control tokens give nothing unless
  /// `special`. An id outside the vocabulary is an error.
  virtual std::string piece(TokenId id, bool special = false) const = 0;

  /// The text of a whole sequence: all pieces, less the one leading space that encode() adds where the vocabulary wants
  /// it, so that decoding what encode() made gives the text again. Never fails on odd bytes: invalid UTF-8 becomes
  /// U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids, bool special = false) const = 0;
  /// True if the vocabulary's authors drop spaces before punctuation when they decode (see clean_up_spaces). That loses
  /// what was in the text, and no stream can do it, so decode() does not.
  virtual bool clean_spaces() const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;  ///< -1 if none
  virtual TokenId eos() const = 0;  ///< -1 if none
  virtual bool add_bos() const = 0;
  virtual bool is_end_of_generation(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;
  virtual const std::string& text(TokenId id) const = 0;  ///< the token as the vocabulary writes it
  virtual TokenId find(std::string_view text) const = 0;  ///< -1 if no token is written so
  virtual const std::string& chat_template() const = 0;   ///< empty if none
  /// Tokens a sampler must never produce.
  virtual std::span<const TokenId> suppressed() const = 0;
};

/// Drops the space before ? ! . and comma, both spaces around a lone apostrophe, and the space before 's 'm 're 've.
std::string clean_up_spaces(std::string_view text);

/// Turns a stream of pieces into text that never ends inside a UTF-8 character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}
  /// The text that became complete with this token (may be empty). Invalid UTF-8 becomes U+FFFD as soon as it is
  /// certain to be invalid.
  std::string push(TokenId id);
  /// What is left at the end; an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;
};

}  // namespace moetier
