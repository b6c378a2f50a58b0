#include "engine/answer.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {
namespace {

SamplerOptions sampler_options(const Tokenizer* tokenizer, int64_t vocab, const AnswerOptions& options) {
  SamplerOptions o = options.sampler;
  if (tokenizer == nullptr) return o;
  const std::vector<TokenId> suppressed = suppressed_tokens(*tokenizer, vocab);
  o.suppress.insert(o.suppress.end(), suppressed.begin(), suppressed.end());
  for (TokenId id = 0; options.ignore_eog && id < std::min<int64_t>(vocab, tokenizer->vocab_size()); ++id) {
    if (tokenizer->is_end_of_generation(id)) o.suppress.push_back(id);
  }
  return o;
}

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::end_of_generation:
      return "end of generation";
    case StopReason::length:
      return "length";
    case StopReason::stop_text:
      return "stop text";
    case StopReason::context_full:
      return "context full";
    case StopReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

Answer::Answer(const Tokenizer* tokenizer, int64_t vocab, const AnswerOptions& options)
    : tokenizer_(tokenizer),
      max_tokens_(options.max_tokens),
      constraint_(options.constraint),
      stop_(options.stop),
      sampler_(sampler_options(tokenizer, vocab, options)) {
  if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_, options.special);
  if (tokenizer_ != nullptr && options.thoughts) thoughts_.emplace(*tokenizer_, *options.thoughts);
  if (tokenizer_ == nullptr && (!options.stop.empty() || constraint_ != nullptr)) {
    usage_error("the model has no vocabulary, so there is no text that could be stopped or constrained");
  }
}

void Answer::begin(std::span<const TokenId> prompt) {
  for (const TokenId token : prompt) sampler_.accept(token);
}

bool Answer::full() const {
  return max_tokens_ >= 0 && static_cast<int64_t>(tokens_.size()) >= max_tokens_;
}

TokenId Answer::sample(std::span<const float> logits) {
  std::optional<TokenId> forced;
  if (thoughts_) forced = thoughts_->forced(constraint_.get());
  const TokenId token = forced ? *forced : sampler_.sample(logits, constraint_.get());
  if (constraint_ != nullptr) constraint_->accept(token);
  sampler_.accept(token);
  if (thoughts_) thoughts_->accept(token);
  return token;
}

std::string Answer::take(TokenId token) {
  if (tokenizer_ == nullptr) {
    tokens_.push_back(token);
    return "";
  }
  if (tokenizer_->is_end_of_generation(token)) {
    reason_ = StopReason::end_of_generation;
    return "";
  }
  std::string text = stop_.push(decoder_->push(token));
  if (!stop_.stopped()) tokens_.push_back(token);
  if (stop_.stopped()) {
    reason_ = StopReason::stop_text;
  } else if (constraint_ != nullptr && constraint_->finished()) {
    reason_ = StopReason::end_of_generation;
  }
  return text;
}

std::string Answer::finish() {
  if (!decoder_ || stop_.stopped()) return "";
  std::string text = stop_.push(decoder_->finish());
  text += stop_.finish();
  if (stop_.stopped()) reason_ = StopReason::stop_text;
  return text;
}

}  // namespace moetier
