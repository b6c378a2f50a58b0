// The policies that rank by decayed counts of picks.
#pragma once

#include <memory>
#include <span>

#include "experts/policy.h"

namespace moetier {

/// `heat`; half-life in tokens.
std::unique_ptr<Policy> make_heat_policy(std::span<const LayerShape> shapes, double half_life = 12);

/// `cycle`: heat - weight * (share of a token until the layer comes again).
std::unique_ptr<Policy> make_cycle_policy(std::span<const LayerShape> shapes, double half_life = 6,
                                          double weight = 0.5);

}  // namespace moetier
