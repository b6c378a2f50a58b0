// A policy with parameters of its own, as text: for simulations that sweep them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "experts/policy.h"
#include "experts/policy_adaptive.h"
#include "experts/policy_reuse.h"

namespace moetier {

struct PolicySpec {
  std::string text;  ///< as it was given
  CachePolicy kind = CachePolicy::standard;
  AdaptiveOptions adaptive;
  ReuseOptions reuse;  ///< of default and reuse
  double heat_half_life = 12, cycle_half_life = 6, cycle_weight = 0.5;
};

/// NAME[:PARAMETER=VALUE...], such as adaptive:half-life=100:factor=1.2. Parameters left out are those of a run. Usage
/// errors: a name, a parameter or a value that does not exist, with those that do.
PolicySpec parse_policy_spec(std::string_view text);

/// `profile`: as for make_policy() of a kind.
std::unique_ptr<Policy> make_policy(const PolicySpec& spec, std::span<const LayerShape> shapes,
                                    std::span<const std::pair<int, int>> profile = {});

}  // namespace moetier
