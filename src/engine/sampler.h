// From logits to the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moetier {

struct SamplerOptions {
  float temperature = 0.8f;  ///< 0 = greedy
  int top_k = 40;            ///< 0 = off
  float top_p = 0.95f;       ///< 1 = off
  float min_p = 0.05f;       ///< 0 = off
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int penalty_window = 64;   ///< last tokens that penalties look at; -1 = all
  uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> suppress;
};

/// The order is the field's: bias, penalties, then top-k, top-p, min-p, temperature, draw. Ties go to the lower id; the same seed
/// and logits give the same token on every machine (own generator and exp).
class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  ~Sampler();
  /// Notes a token of the prompt or one just generated.
  void accept(TokenId token);
  TokenId sample(std::span<const float> logits);
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
