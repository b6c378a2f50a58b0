#include "server/logprobs.h"

#include <algorithm>
#include <cmath>

namespace moetier {

TokenOut token_with_probs(std::span<const float> logits, TokenId token, int n) {
  TokenOut out;
  out.token = token;
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - static_cast<double>(top));
  const double log_sum = std::log(sum) + static_cast<double>(top);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
  };
  out.logprob = logprob(token);
  // A heap of the best so far, its worst on top: most logits fall at the first compare.
  const auto better = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<TokenId> best;
  const size_t wanted = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  for (size_t i = 0; wanted > 0 && i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (best.size() == wanted) {
      if (!better(id, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.back() = id;
    } else {
      best.push_back(id);
    }
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (const TokenId id : best) out.top.push_back({id, logprob(id)});
  return out;
}

}  // namespace moetier
