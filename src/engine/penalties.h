// Penalties on tokens that were seen before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moetier {

/// NaN counts as -infinity, and +infinity as the largest float, so that differences to the maximum are numbers.
inline float sane_logit(float logit) {
  if (!(logit > -std::numeric_limits<float>::infinity())) return -std::numeric_limits<float>::infinity();
  return std::min(logit, std::numeric_limits<float>::max());
}

/// Counts the tokens of a window and lowers their logits: the repetition penalty (Keskar et al. 2019, CTRL) divides
/// positive logits and multiplies negative ones; frequency and presence penalties are subtracted per occurrence and
/// once.
class Penalties {
 public:
  /// window: last tokens looked at; 0 = none, -1 = all.
  Penalties(float repeat, float presence, float frequency, int window);
  bool active() const { return window_ != 0 && (repeat_ != 1 || presence_ != 0 || frequency_ != 0); }
  void accept(TokenId token);
  void apply(std::span<float> logits);
  void reset();

 private:
  void forget(TokenId token) { --counts_[static_cast<size_t>(token)]; }

  float repeat_, presence_, frequency_;
  int window_;
  std::vector<TokenId> ring_;    // the window's tokens when it is bounded
  size_t next_ = 0;              // where the ring is written next
  std::vector<int32_t> counts_;  // by token, within the window
  std::vector<bool> listed_;     // by token: stands in seen_
  std::vector<TokenId> seen_;    // distinct tokens; may hold some whose count is 0 again
};

}  // namespace moetier
