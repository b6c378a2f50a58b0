// From logits to the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/constraint.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

struct SamplerOptions {
  float temperature = 0.8f;     ///< 0 = greedy
  int top_k = 40;               ///< 0 = off
  float top_p = 0.95f;          ///< 1 = off
  float min_p = 0.05f;          ///< 0 = off
  float repeat_penalty = 1.0f;  ///< 1 = off; divides positive logits, multiplies negative ones
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;  ///< subtracted once per token, and once per occurrence
  int penalty_window = 64;                                  ///< last tokens that penalties look at; 0 = none, -1 = all
  uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;  ///< added to the logit; -infinity forbids
  std::vector<TokenId> suppress;                      ///< never chosen
};

/// The order is the field's: bias, penalties, then top-k, top-p, min-p, temperature, draw. Ties go to the lower id; the
/// same seed and logits give the same token on every machine (own generator and exp). A NaN counts as -infinity. In
/// steady state a token allocates nothing and costs O(vocabulary), plus sorting what the filters keep.
class Sampler {
 public:
  /// A value out of range (a negative temperature, top_p outside 0..1, a negative token id, ...) is a usage error that
  /// names it.
  explicit Sampler(SamplerOptions options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  const SamplerOptions& options() const;
  /// Notes a token of the prompt or one just generated, for the penalties. Negative ids are ignored.
  void accept(TokenId token);
  /// Does not accept() what it gives. A constraint forbids tokens behind bias and penalties; it is not told what was
  /// chosen. Errors: no logits; biased or suppressed ids outside the vocabulary; everything suppressed or forbidden.
  TokenId sample(std::span<const float> logits, TokenConstraint* constraint = nullptr);
  /// Forgets the accepted tokens and starts the generator anew.
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tokens that are never to be chosen from a head of `vocab` rows: those that the vocabulary suppresses, and the rows
/// beyond it, which pad the head and stand for no text.
std::vector<TokenId> suppressed_tokens(const Tokenizer& tokenizer, int64_t vocab);

/// The token with the highest logit; ties go to the lower id, a NaN counts as -infinity. -1 for no logits.
TokenId argmax(std::span<const float> logits);

}  // namespace moetier
