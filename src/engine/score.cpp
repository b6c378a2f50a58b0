#include "engine/score.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "compute/cpu/math.h"

namespace moetier {

double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    fail("token {} cannot be scored: there are {} logits", token, logits.size());
  }
  float top = -std::numeric_limits<float>::infinity();
  bool numbers = true;
  for (const float l : logits) {
    top = l > top ? l : top;
    numbers = numbers && l == l;
  }
  if (!numbers || !std::isfinite(top)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const float l : logits) {
    const float d = l - top;
    // exp() stops at its limit instead of going on to 0.
    sum += d < -num::kExpLimit ? 0.0 : static_cast<double>(num::exp(d));
  }
  return std::log(sum) - (static_cast<double>(logits[static_cast<size_t>(token)]) - static_cast<double>(top));
}

double RunningMean::standard_error() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  return std::sqrt(squares_ / (n - 1) / n);
}

}  // namespace moetier
