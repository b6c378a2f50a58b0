// Which bytes of a model go to which tier, and what may be expected of it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "experts/layer_shape.h"
#include "experts/residency.h"
#include "experts/simulator.h"

namespace moetier {

/// (place of the layer, expert), hottest first.
using EntryOrder = std::vector<std::pair<int, int>>;

/// Entries by their picks in these runs, most first; equal ones by layer and expert. Only those that were picked.
EntryOrder rank_picks(std::span<const TraceRun> runs);

/// `ranked`, and behind them the entries that it lacks: the first expert of every layer, then the second, and so on.
EntryOrder whole_order(std::span<const LayerShape> shapes, EntryOrder ranked);

struct TierPlanInput {
  std::span<const LayerShape> shapes;
  uint64_t dense = 0;              ///< bytes of dense weights
  std::optional<uint64_t> device;  ///< bytes of device memory for weights; nullopt: there is no device
  int whole_layers = 0;   ///< of the last layers with experts so many go to the device whole, before any other entry
  uint64_t host = 0;      ///< bytes for entries in memory, as a budget of the engine's cache
  bool resident = false;  ///< memory holds every entry that the device does not
  EntryOrder order;       ///< of all entries
};

struct TierPlan {
  bool dense_on_device = false;  ///< all of it or nothing; without it the device gets no entries either
  int whole_layers = 0;          ///< of those asked for, so many fit
  EntryOrder device, host;       ///< in the order's order; host: what its slots hold if it is filled in that order
  uint64_t device_bytes = 0, host_bytes = 0, file_bytes = 0;  ///< of entries
  int64_t file_entries = 0;
};
TierPlan plan_tiers(const TierPlanInput& input);

/// Where decoded tokens find their entries: shares of their picks, which sum to 1.
struct TierHits {
  double device = 0, host = 0, file = 0;
  double read_bytes = 0;     ///< a token, from the file
  double compute_bytes = 0;  ///< a token, of entries that the device does not hold
};

/// As the engine's cache with this policy would find them over the run, from an empty cache on.
TierHits expected_hits(const TraceRun& run, const TierPlanInput& input, const TierPlan& plan, CachePolicy policy);
/// Without a trace: as if every expert of a layer were as likely as any other.
TierHits even_hits(const TierPlanInput& input, const TierPlan& plan);

}  // namespace moetier
