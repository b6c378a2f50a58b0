// What could be hit by someone who knows the future.
#pragma once

#include <memory>

#include "experts/policy.h"
#include "experts/simulator.h"

namespace moetier {

/// Belady's rule (1966) with bypass: the entry whose next pick is farthest away goes, or is not admitted. With entries
/// of one size no policy misses less; where sizes differ a little it is close to that. Only for replaying `run` itself,
/// from its first step on; `run` must outlive it.
std::unique_ptr<Policy> make_belady_policy(const TraceRun& run);

}  // namespace moetier
