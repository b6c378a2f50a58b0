// `adaptive`: swaps between tokens, with hysteresis, for caches that should change slowly.
#pragma once

#include <memory>
#include <span>

#include "experts/policy.h"

namespace moetier {

struct AdaptiveOptions {
  double half_life = 350;           ///< generated tokens
  int swap_every = 32;              ///< generated tokens
  int most_swaps = 64;              ///< of a round
  int fill_every = 8;               ///< generated tokens, while slots are free
  int most_fills = 128;             ///< of a round
  double factor = 1.5, margin = 2;  ///< in when heat > factor * heat of the one replaced + margin
};

/// A miss never takes a slot at once. Heat counts an expert once per visit, and only visits of up to kSmallRows rows.
std::unique_ptr<Policy> make_adaptive_policy(std::span<const LayerShape> shapes, const AdaptiveOptions& options = {});

}  // namespace moetier
