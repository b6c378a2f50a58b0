// How a run's entries and dense weights were kept and what that cost, as JSON and as lines for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/account.h"
#include "engine/run_meters.h"

namespace moetier {

/// What was asked for and what came of it: modes, policies, reads, the plan with its numbers. Sizes in bytes.
nlohmann::ordered_json residency_json(Context& context);

/// One flat object of the numbers that comparisons need (sizes in MiB, times in seconds), with `prefill` and `decode`
/// apart and `layers`. What could not be measured is null, and `unmeasured` says why. Keys are only ever added.
nlohmann::ordered_json stats_json(Context& context, const RunMeters& meters);

AccountInput account_input(Context& context, const RunMeters& meters);

/// Lines for the end of a run, e.g. "moe-cache: 77.1% hit, resident 4000.0 MiB". `verbose` adds totals of small and
/// large ubatches, the spread of the hit rate over layers and what the adaptive policy brought in.
std::vector<std::string> residency_lines(Context& context, const RunMeters& meters, bool verbose);

}  // namespace moetier
