// How much memory the cache gets: arithmetic on what is there and what else will be needed. Pure; once, at load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "experts/residency.h"

namespace moetier {

/// Bytes of everything that a plan depends on.
struct SizingInput {
  std::optional<uint64_t> available;  ///< to this process now; nullopt: not known
  uint64_t group_limit = 0;           ///< the tightest cgroup's limit, 0 = none
  uint64_t bank = 0;                  ///< all entries
  // What the run will allocate beside the cache.
  uint64_t kv = 0, buffers = 0, dense = 0;  ///< dense: only where it lives in memory of our own (anon)
  uint64_t dense_mapped = 0;                ///< dense weights that stay in the page cache; never subtracted
};

struct SizingPlan {
  ExpertMode mode = ExpertMode::stream;  ///< what automatic became
  bool fits = false;                     ///< everything fits in memory with air
  uint64_t budget = 0;                   ///< of the cache, for mode stream
  bool from_memory = false;              ///< the budget was sized from memory, not asked for
  uint64_t reserved = 0;                 ///< kv + buffers + dense
  uint64_t floor = 0;                    ///< left free, after scaling
  SizingInput input;
  std::string why;  ///< one sentence with the numbers
};

/// The least budget that a user may ask for without insisting, and that `auto` takes if memory is not known.
inline constexpr uint64_t kLeastCache = uint64_t{1500} << 20;

/// The floor, scaled down where a cgroup's limit is small: there it is not the system's share but a margin of our own.
uint64_t scaled_floor(uint64_t floor, uint64_t group_limit);

/// `auto` is resident if bank, dense weights, KV cache, buffers and the floor fit in what is available, else stream. A
/// budget from memory is available - reserved - floor, at most the ceiling and at most the bank; where
/// that comes out below kLeastCache it is lifted towards it, but never above seven eighths of available - reserved.
SizingPlan plan_residency(const ResidencyOptions& options, const SizingInput& input);

/// One sentence if the budget is below the token cycle, else empty.
std::string below_cycle(uint64_t budget, uint64_t cycle, int top_k, std::string_view policy);

}  // namespace moetier
