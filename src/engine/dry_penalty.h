// A penalty on tokens that would lengthen a repetition ("don't repeat yourself").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moetier {

/// Where what was said last stood before, with L tokens in common, the token that followed there loses
/// multiplier * base^(L - allowed) if L is `allowed` or more. A sequence in common never reaches over a breaker.
class DryPenalty {
 public:
  /// `window`: the last tokens that are looked at; -1 = all, 0 = none. `breakers`: ids, in any order.
  DryPenalty(float multiplier, float base, int allowed, int window, std::vector<TokenId> breakers);
  bool active() const { return multiplier_ > 0 && window_ != 0; }
  void accept(TokenId token);
  void apply(std::span<float> logits);  ///< O(window)
  void reset() { history_.clear(); }

 private:
  float penalty(size_t common) const;
  float multiplier_, base_;
  size_t allowed_;
  int window_;
  std::vector<TokenId> breakers_;  // ascending
  std::vector<TokenId> history_;
  std::vector<size_t> common_;  // with the end, by distance from it
};

}  // namespace moetier
