// One answer in the making: from the logits behind its last token to the next token, and to text that is certain.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/constraint.h"
#include "engine/sampler.h"
#include "engine/stop_text.h"
#include "engine/thought_watch.h"
#include "model/hparams.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// What decides an answer, beside model and prompt.
struct AnswerOptions {
  int64_t max_tokens = -1;        ///< -1 = until the context is full
  SamplerOptions sampler;         ///< the vocabulary's own suppressed tokens are added
  std::vector<std::string> stop;  ///< texts that end it; never part of the output, not even partly
  bool ignore_eog = false;        ///< end-of-generation tokens are never chosen
  bool special = false;           ///< control tokens appear in the text as they are written
  /// What the text must obey; of this answer alone. May be null.
  std::shared_ptr<TokenConstraint> constraint;
  /// How to tell thoughts from the rest, and how many there may be. Without it nothing is a thought.
  std::optional<ThoughtOptions> thoughts;
};

enum class StopReason { end_of_generation, length, stop_text, context_full, cancelled };
std::string_view to_string(StopReason reason);

/// Chooses tokens and turns them into text. Knows no context: whoever computes the logits feeds it, alone or for many
/// answers at once, so an answer is the same either way.
class Answer {
 public:
  /// `tokenizer` may be null for a model without vocabulary: no text then, and no end of generation. `vocab`: rows of
  /// the head. Errors (usage): sampler options out of range, an empty stop text, stop texts or a constraint without a
  /// vocabulary.
  Answer(const Tokenizer* tokenizer, int64_t vocab, const AnswerOptions& options);

  /// The prompt's tokens, for the penalties.
  void begin(std::span<const TokenId> prompt);
  /// True once max_tokens are there: nothing more is to be sampled.
  bool full() const;
  /// Chooses the next token and notes it. Errors: ids outside the vocabulary; a constraint that allows no token.
  TokenId sample(std::span<const float> logits);
  /// What became certain with a token just sampled. If it ends the answer, reason() says why from then on.
  std::string take(TokenId token);
  /// What is left at the end: a character cut short and a stop text that did not come true are part of the answer after
  /// all. Nothing if a stop text ended it, and it may end it only here.
  std::string finish();

  /// Taken so far, without the one that ended it (end of generation, or the end of a stop text).
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// end_of_generation or stop_text, once that happened.
  std::optional<StopReason> reason() const { return reason_; }
  const StopText& stop() const { return stop_; }
  Sampler& sampler() { return sampler_; }  ///< for what the last token was drawn from
  int64_t thought_tokens() const { return thoughts_ ? thoughts_->thought_tokens() : 0; }  ///< of those sampled

 private:
  const Tokenizer* tokenizer_;
  int64_t max_tokens_;
  std::shared_ptr<TokenConstraint> constraint_;
  StopText stop_;
  Sampler sampler_;
  std::optional<ThoughtWatch> thoughts_;
  std::optional<StreamDecoder> decoder_;
  std::vector<TokenId> tokens_;
  std::optional<StopReason> reason_;
};

}  // namespace moetier
