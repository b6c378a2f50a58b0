// The policies that rank by heat: `heat`, `cycle` and `default`.
#pragma once

#include <memory>
#include <span>

#include "experts/policy.h"

namespace moetier {

std::unique_ptr<Policy> make_heat_policy(std::span<const LayerShape> shapes, double half_life = 24);

/// heat - weight * (share of a token until the layer comes again).
std::unique_ptr<Policy> make_cycle_policy(std::span<const LayerShape> shapes, double half_life = 4,
                                          double weight = 0.5);

std::unique_ptr<Policy> make_default_policy(std::span<const LayerShape> shapes);

}  // namespace moetier
