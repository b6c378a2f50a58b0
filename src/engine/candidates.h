// Tokens among which a sampler chooses, and what they weigh.
#pragma once

#include "compute/cpu/math.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

struct Candidate {
  float logit;
  TokenId id;
};

/// The order of preference: total, so that the outcome does not depend on the library's sorting.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// e^((logit - top) * scale), really 0 where it would vanish.
inline double weight(float logit, float top, float scale) {
  const float difference = (logit - top) * scale;
  return difference < -num::kExpLimit ? 0.0 : static_cast<double>(num::exp(difference));
}

}  // namespace moetier
