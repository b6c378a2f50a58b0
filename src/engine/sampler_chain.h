// Any of the sampler's steps, in any order.
#pragma once

#include <span>
#include <vector>

#include "engine/candidates.h"
#include "engine/dry_penalty.h"
#include "engine/penalties.h"
#include "engine/random.h"
#include "engine/sampler.h"

namespace moetier {

/// What Sampler uses where its short way (top-k, top-p, min-p, temperature, in this order) is not enough. Where both
/// can be used they give the same token. References are to outlive it.
class SamplerChain {
 public:
  SamplerChain(const SamplerOptions& options, Penalties& penalties, DryPenalty& dry, Random& random)
      : options_(options), penalties_(penalties), dry_(dry), random_(random) {}

  /// `logits`: biased and masked, one of them above -infinity; they are changed.
  TokenId sample(std::vector<float>& logits);
  /// What the last token was drawn from, likeliest first.
  std::span<const Candidate> kept() const { return candidates_; }
  double chance(const Candidate& candidate) const { return weigh(candidate) / total_; }

 private:
  void run(SamplerStep step, std::vector<float>& logits);
  template <typename Penalty>
  void penalize(Penalty& penalty, std::vector<float>& logits);
  void find_top();
  void sort();
  void keep(size_t n);
  template <typename Wanted>
  void keep_if(const Wanted& wanted);
  double weigh(const Candidate& candidate) const { return weight(candidate.logit, top_, scale_); }
  double total(const std::vector<float>& logits);
  double entropy(double sum);
  void top_n_sigma();
  void typical(const std::vector<float>& logits);
  void nucleus(const std::vector<float>& logits);
  void above_min_p();
  void exclude_top(const std::vector<float>& logits);
  void temper(const std::vector<float>& logits);
  size_t least() const;  // candidates that filters must leave

  const SamplerOptions& options_;
  Penalties& penalties_;
  DryPenalty& dry_;
  Random& random_;
  std::vector<Candidate> candidates_;
  float top_ = 0, scale_ = 1;  // of all candidates the highest logit; what logits are to be multiplied with
  bool sorted_ = false, whole_ = true, greedy_ = false;
  double total_ = 1;
};

}  // namespace moetier
