#include "experts/sizing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace moetier {
namespace {

uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

/// A budget from memory, and why.
uint64_t budget_from_memory(const ResidencyOptions& options, SizingPlan& plan) {
  const SizingInput& in = plan.input;
  const uint64_t most = options.ceil_bytes > 0 ? std::min(options.ceil_bytes, in.bank) : in.bank;
  if (!in.available) {
    const uint64_t budget = std::min(kLeastCache, most);
    plan.why =
        fmt::format("how much memory is available is not known, so the cache takes the least, {}; --cache-mb sets it",
                    format_bytes(budget));
    return budget;
  }
  const uint64_t usable = less(*in.available, plan.reserved);
  const uint64_t wanted = std::max(less(usable, plan.floor), std::min(kLeastCache, usable / 8 * 7));
  const uint64_t budget = std::min(wanted, most);
  const char* const bound = budget == wanted    ? ""
                            : budget == in.bank ? ", and all experts fit in less"
                                                : ", and the ceiling is lower";
  plan.why =
      fmt::format("cache {}: of {} available, KV cache {}, buffers {}{} and {} of air leave {}{}", format_bytes(budget),
                  format_bytes(*in.available), format_bytes(in.kv), format_bytes(in.buffers),
                  in.dense > 0 ? fmt::format(", dense weights {}", format_bytes(in.dense)) : "",
                  format_bytes(less(usable, wanted)), format_bytes(wanted), bound);
  return budget;
}

}  // namespace

uint64_t scaled_floor(uint64_t floor, uint64_t group_limit) {
  constexpr uint64_t kShare = 16;
  return group_limit == 0 ? floor : std::min(floor, group_limit / kShare);
}

SizingPlan plan_residency(const ResidencyOptions& options, const SizingInput& input) {
  SizingPlan plan;
  plan.input = input;
  plan.floor = scaled_floor(options.floor_bytes, input.group_limit);
  plan.reserved = input.kv + input.buffers + input.dense;
  const uint64_t all = input.bank + plan.reserved + input.dense_mapped + plan.floor;
  plan.fits = input.available && all <= *input.available;
  plan.mode = options.mode;
  if (options.mode == ExpertMode::automatic) {
    // A cache that was asked for is a wish to stream.
    plan.mode = plan.fits && !options.cache_bytes ? ExpertMode::resident : ExpertMode::stream;
  }
  if (plan.mode != ExpertMode::stream) {
    plan.why =
        fmt::format("experts {}: {} of experts and {} beside them {} the {} available", to_string(plan.mode),
                    format_bytes(input.bank), format_bytes(all - input.bank), plan.fits ? "fit in" : "do not fit in",
                    input.available ? format_bytes(*input.available) : "unknown amount");
    return plan;
  }
  if (options.cache_bytes) {
    plan.budget = *options.cache_bytes;
    plan.why = fmt::format("cache {} as asked for", format_bytes(plan.budget));
    return plan;
  }
  plan.from_memory = true;
  plan.budget = budget_from_memory(options, plan);
  return plan;
}

std::string below_cycle(uint64_t budget, uint64_t cycle, int top_k, std::string_view policy) {
  if (budget >= cycle || budget == 0) return {};
  return fmt::format(
      "the expert cache of {} is below this model's token cycle of {} at top-k {}{}", format_bytes(budget),
      format_bytes(cycle), top_k,
      policy == "lru" ? ", so no expert can stay until the next token: expect a hit rate near zero" : "");
}

}  // namespace moetier
