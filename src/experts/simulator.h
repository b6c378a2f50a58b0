// Replays routing traces through the engine's own cache table: what would be hit, without a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experts/cache_table.h"
#include "experts/entry_map.h"
#include "experts/trace.h"

namespace moetier {

/// A trace as the visits that a cache would see: a prompt layer by layer with all its rows, then token by token.
struct TraceRun {
  struct Step {
    int layer = 0;  ///< among `shapes`
    int64_t rows = 0;
    bool prompt = false;
    size_t first = 0, count = 0;  ///< of `picks`
  };
  std::vector<LayerShape> shapes;
  std::vector<Step> steps;
  std::vector<int32_t> picks;
  int64_t prompt_tokens = 0, decode_tokens = 0;
  std::span<const int32_t> picks_of(const Step& step) const { return {picks.data() + step.first, step.count}; }
  uint64_t cycle_bytes() const;  ///< sum of entry bytes x min(top_k, n_expert)
  uint64_t bank_bytes() const;
};

struct TraceRunOptions {
  int layers = 0;      ///< the trace's first layers only; 0 = all
  int64_t ubatch = 0;  ///< most rows of a prompt in one visit; 0 = the whole prompt
  bool prompt = true;  ///< false: decoded tokens only
  /// A trace without decoded tokens (of a text that was run through a model) is played token by token, as if all were
  /// decoded; else it is one prompt.
  bool text_as_decoded = false;
};

/// With the trace's own layers and entry bytes. An error if it does not tell the bytes of a layer; `name` names it.
TraceRun run_of(const RoutingTrace& trace, const std::string& name, const TraceRunOptions& options = {});
/// On a model's layers: layer l of Lm plays the trace's MoE layer floor(l * Lt / Lm), and top_k becomes the trace's. An
/// error if the trace picks experts that the model does not have.
TraceRun run_on(const RoutingTrace& trace, const std::string& name, std::vector<LayerShape> shapes,
                const TraceRunOptions& options = {});

/// What the engine's cache gets of a budget for these layers: homes in transit are taken off.
uint64_t engine_cache_bytes(std::span<const LayerShape> shapes, uint64_t budget);

struct SimulationResult {
  uint64_t hits = 0, misses = 0;                ///< of decoded tokens
  uint64_t prompt_hits = 0, prompt_misses = 0;  ///< distinct experts per visit
  uint64_t miss_bytes = 0, prompt_miss_bytes = 0;
  uint64_t swap_bytes = 0;  ///< brought in between tokens
  uint64_t evictions = 0;
  uint64_t capacity_bytes = 0;
  int64_t slots = 0;
  double hit_percent() const;  ///< of decoded tokens; 0 if there are none
};

/// `profile`: (place of the layer, expert), hottest first; the cache is filled from it before the first visit.
SimulationResult simulate(const TraceRun& run, std::unique_ptr<Policy> policy, std::unique_ptr<Slots> slots,
                          std::span<const std::pair<int, int>> profile = {});

/// Decode misses that no cache can avoid, since nobody asked for those entries before.
uint64_t compulsory_misses(const TraceRun& run);

}  // namespace moetier
