#include "engine/sampler_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compute/cpu/math64.h"

namespace moetier {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLeastPower = 1e-300;  // below, a power is 0: its logarithm need not be right

/// x^y of 0 <= x <= 1 and y >= 0, the same on every machine.
double power(double x, double y) {
  if (y == 0) return 1;
  if (y == 1) return x;
  return x < kLeastPower ? 0 : num::exp64(y * num::log64(x));
}

}  // namespace

TokenId SamplerChain::sample(std::vector<float>& logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -kInfinity) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  scale_ = 1;
  sorted_ = greedy_ = false;
  whole_ = true;
  find_top();
  for (const SamplerStep step : options_.order) run(step, logits);
  sort();
  total_ = total(logits);
  if (greedy_) return candidates_.front().id;
  const double target = random_.uniform() * total_;
  double sum = 0;
  TokenId last = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    const double w = weigh(candidate);
    if (w == 0) break;  // the rest weigh nothing either
    last = candidate.id;
    sum += w;
    if (sum > target) break;
  }
  return last;
}

void SamplerChain::run(SamplerStep step, std::vector<float>& logits) {
  switch (step) {
    case SamplerStep::penalties:
      if (penalties_.active()) penalize(penalties_, logits);
      break;
    case SamplerStep::dry:
      if (dry_.active()) penalize(dry_, logits);
      break;
    case SamplerStep::top_n_sigma:
      if (options_.top_n_sigma > 0) top_n_sigma();
      break;
    case SamplerStep::top_k:
      if (options_.top_k > 0) keep(static_cast<size_t>(options_.top_k));
      break;
    case SamplerStep::typical_p:
      if (options_.typical_p < 1) typical(logits);
      break;
    case SamplerStep::top_p:
      if (options_.top_p < 1) nucleus(logits);
      break;
    case SamplerStep::min_p:
      if (options_.min_p > 0) above_min_p();
      break;
    case SamplerStep::xtc:
      if (options_.xtc_probability > 0) exclude_top(logits);
      break;
    case SamplerStep::temperature:
      temper(logits);
      break;
  }
}

template <typename Penalty>
void SamplerChain::penalize(Penalty& penalty, std::vector<float>& logits) {
  if (scale_ != 1) {  // what is subtracted is not scaled
    for (float& logit : logits) logit = sane_logit(logit * scale_);
    scale_ = 1;
  }
  penalty.apply(logits);
  for (Candidate& candidate : candidates_) candidate.logit = logits[static_cast<size_t>(candidate.id)];
  keep_if([](const Candidate& candidate) { return candidate.logit != -kInfinity; });
  sorted_ = false;
  find_top();
}

void SamplerChain::find_top() {
  top_ = -kInfinity;
  for (const Candidate& candidate : candidates_) top_ = std::max(top_, candidate.logit);
}

void SamplerChain::sort() {
  if (!sorted_) std::sort(candidates_.begin(), candidates_.end(), better);
  sorted_ = true;
}

/// The best n, in order.
void SamplerChain::keep(size_t n) {
  if (n >= candidates_.size()) return;
  const auto end = candidates_.begin() + static_cast<ptrdiff_t>(n);
  if (!sorted_) {
    std::nth_element(candidates_.begin(), end, candidates_.end(), better);
    std::sort(candidates_.begin(), end, better);
    sorted_ = true;
  }
  candidates_.erase(end, candidates_.end());
  whole_ = false;
}

/// Those that are wanted, and in any case one.
template <typename Wanted>
void SamplerChain::keep_if(const Wanted& wanted) {
  if (std::none_of(candidates_.begin(), candidates_.end(), wanted)) return keep(1);
  const size_t before = candidates_.size();
  std::erase_if(candidates_, [&](const Candidate& candidate) { return !wanted(candidate); });
  whole_ = whole_ && candidates_.size() == before;
}

size_t SamplerChain::least() const {
  return static_cast<size_t>(std::max(options_.min_keep, 1));
}

/// Sum of all weights; in ascending id as long as nothing was left out.
double SamplerChain::total(const std::vector<float>& logits) {
  double sum = 0;
  if (whole_) {
    for (const float logit : logits) sum += weight(logit, top_, scale_);
    return sum;
  }
  sort();
  for (const Candidate& candidate : candidates_) sum += weigh(candidate);
  return sum;
}

double SamplerChain::entropy(double sum) {
  sort();
  double entropy = 0;
  for (const Candidate& candidate : candidates_) {
    const double p = weigh(candidate) / sum;
    if (p > 0) entropy -= p * num::log64(p);
  }
  return entropy;
}

/// Logits within n standard deviations (of all of them) of the highest.
void SamplerChain::top_n_sigma() {
  const auto n = static_cast<double>(candidates_.size());
  double mean = 0, squares = 0;
  for (const Candidate& candidate : candidates_) mean += static_cast<double>(candidate.logit);
  mean /= n;
  for (const Candidate& candidate : candidates_) {
    const double d = static_cast<double>(candidate.logit) - mean;
    squares += d * d;
  }
  const double lowest = static_cast<double>(top_) - static_cast<double>(options_.top_n_sigma) * std::sqrt(squares / n);
  keep_if([&](const Candidate& candidate) { return static_cast<double>(candidate.logit) >= lowest; });
}

/// Those whose surprise is nearest to the mean surprise, until their probabilities exceed typical_p.
void SamplerChain::typical(const std::vector<float>& logits) {
  const double sum = total(logits);
  const double mean = entropy(sum);
  std::vector<std::pair<double, size_t>> order;  // distance, rank
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double p = weigh(candidates_[i]) / sum;
    const double distance = p > 0 ? std::abs(-num::log64(p) - mean) : std::numeric_limits<double>::infinity();
    order.emplace_back(distance, i);
  }
  std::sort(order.begin(), order.end());
  double reached = 0;
  size_t n = 0;
  while (n < order.size()) {
    reached += weigh(candidates_[order[n++].second]) / sum;
    if (reached > static_cast<double>(options_.typical_p) && n >= least()) break;
  }
  if (n == order.size()) return;
  std::vector<size_t> ranks;
  for (size_t i = 0; i < n; ++i) ranks.push_back(order[i].second);
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < n; ++i) candidates_[i] = candidates_[ranks[i]];
  candidates_.resize(n);
  whole_ = false;
  find_top();
}

/// The fewest of the best whose probabilities reach top_p.
void SamplerChain::nucleus(const std::vector<float>& logits) {
  const double wanted = static_cast<double>(options_.top_p) * total(logits);
  sort();
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += weigh(candidates_[i]);
    if (sum >= wanted && i + 1 >= least()) return keep(i + 1);
  }
}

/// Those with at least min_p times the best one's probability.
void SamplerChain::above_min_p() {
  sort();
  size_t n = 1;
  while (n < candidates_.size() && (n < least() || weigh(candidates_[n]) >= static_cast<double>(options_.min_p))) {
    ++n;
  }
  keep(n);
}

/// Now and then leaves out all that reach the threshold, but for the least likely of them.
void SamplerChain::exclude_top(const std::vector<float>& logits) {
  if (options_.xtc_threshold > 0.5f || candidates_.size() < 2) return;
  if (random_.uniform() >= static_cast<double>(options_.xtc_probability)) return;
  const double wanted = static_cast<double>(options_.xtc_threshold) * total(logits);
  sort();
  size_t reach = 0;
  while (reach < candidates_.size() && weigh(candidates_[reach]) >= wanted) ++reach;
  if (reach < 2 || candidates_.size() - (reach - 1) < least()) return;
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(reach - 1));
  whole_ = false;
  find_top();
}

/// The temperature, or where it is dynamic one that rises with the entropy.
void SamplerChain::temper(const std::vector<float>& logits) {
  float temperature = options_.temperature;
  const float range = options_.dynatemp_range;
  if (range > 0 && candidates_.size() > 1) {
    const double most = num::log64(static_cast<double>(candidates_.size()));
    const double share = std::min(entropy(total(logits)) / most, 1.0);
    const float lowest = std::max(temperature - range, 0.0f);
    const double rise = power(std::max(share, 0.0), static_cast<double>(options_.dynatemp_exponent));
    temperature = lowest + static_cast<float>(static_cast<double>(temperature + range - lowest) * rise);
  }
  const float scale = scale_ * (1.0f / temperature);
  if (std::isfinite(scale)) {
    scale_ = scale;
    return;
  }
  // Temperatures too small to divide by are greedy.
  keep(1);
  greedy_ = true;
}

}  // namespace moetier
