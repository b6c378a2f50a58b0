#include "experts/tier_plan.h"

#include <algorithm>

#include "experts/slots.h"

namespace moetier {
namespace {

/// By place and expert.
template <typename T>
std::vector<std::vector<T>> per_entry(std::span<const LayerShape> shapes, T value) {
  std::vector<std::vector<T>> all;
  for (const LayerShape& shape : shapes) all.emplace_back(static_cast<size_t>(shape.n_expert), value);
  return all;
}

template <typename T>
T& at(std::vector<std::vector<T>>& all, std::pair<int, int> entry) {
  return all[static_cast<size_t>(entry.first)][static_cast<size_t>(entry.second)];
}

uint64_t bytes_of(std::span<const LayerShape> shapes, int layer) {
  return shapes[static_cast<size_t>(layer)].entry_bytes;
}

/// The run without the picks that the device serves; `served` counts those of decoded tokens.
TraceRun without_device(const TraceRun& run, const TierPlan& plan, uint64_t& served) {
  auto held = per_entry<char>(run.shapes, 0);
  for (const std::pair<int, int>& entry : plan.device) at(held, entry) = 1;
  TraceRun rest;
  rest.shapes = run.shapes;
  rest.prompt_tokens = run.prompt_tokens;
  rest.decode_tokens = run.decode_tokens;
  for (const TraceRun::Step& step : run.steps) {
    TraceRun::Step left = step;
    left.first = rest.picks.size();
    for (const int32_t expert : run.picks_of(step)) {
      if (at(held, {step.layer, expert}) == 0) {
        rest.picks.push_back(expert);
      } else if (!step.prompt) {
        ++served;
      }
    }
    left.count = rest.picks.size() - left.first;
    if (left.count > 0) rest.steps.push_back(left);
  }
  return rest;
}

}  // namespace

EntryOrder rank_picks(std::span<const TraceRun> runs) {
  EntryOrder order;
  if (runs.empty()) return order;
  auto counts = per_entry<uint64_t>(runs.front().shapes, 0);
  for (const TraceRun& run : runs) {
    for (const TraceRun::Step& step : run.steps) {
      for (const int32_t expert : run.picks_of(step)) ++at(counts, {step.layer, expert});
    }
  }
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    for (size_t expert = 0; expert < counts[layer].size(); ++expert) {
      if (counts[layer][expert] > 0) order.emplace_back(static_cast<int>(layer), static_cast<int>(expert));
    }
  }
  std::ranges::stable_sort(order,
                           [&](std::pair<int, int> a, std::pair<int, int> b) { return at(counts, a) > at(counts, b); });
  return order;
}

EntryOrder whole_order(std::span<const LayerShape> shapes, EntryOrder ranked) {
  auto seen = per_entry<char>(shapes, 0);
  int most = 0;
  for (const LayerShape& shape : shapes) most = std::max(most, shape.n_expert);
  for (const std::pair<int, int>& entry : ranked) at(seen, entry) = 1;
  for (int expert = 0; expert < most; ++expert) {
    for (int layer = 0; layer < static_cast<int>(shapes.size()); ++layer) {
      if (expert < shapes[static_cast<size_t>(layer)].n_expert && at(seen, {layer, expert}) == 0)
        ranked.emplace_back(layer, expert);
    }
  }
  return ranked;
}

TierPlan plan_tiers(const TierPlanInput& input) {
  TierPlan plan;
  const std::span<const LayerShape> shapes = input.shapes;
  auto placed = per_entry<char>(shapes, 0);
  plan.dense_on_device = input.device && input.dense <= *input.device;
  uint64_t left = plan.dense_on_device ? *input.device - input.dense : 0;
  const auto to_device = [&](std::pair<int, int> entry) {
    plan.device.push_back(entry);
    plan.device_bytes += bytes_of(shapes, entry.first);
    left -= bytes_of(shapes, entry.first);
    at(placed, entry) = 1;
  };
  for (int layer = static_cast<int>(shapes.size()) - 1; layer >= 0 && plan.whole_layers < input.whole_layers; --layer) {
    const auto experts = static_cast<uint64_t>(shapes[static_cast<size_t>(layer)].n_expert);
    if (experts * bytes_of(shapes, layer) > left) break;
    for (int expert = 0; expert < static_cast<int>(experts); ++expert) to_device({layer, expert});
    ++plan.whole_layers;
  }
  uint64_t room = engine_cache_bytes(shapes, input.host);
  for (const std::pair<int, int>& entry : input.order) {
    if (at(placed, entry) != 0) continue;
    const uint64_t bytes = bytes_of(shapes, entry.first), slot = shapes[static_cast<size_t>(entry.first)].slot_bytes;
    if (plan.dense_on_device && bytes <= left) {
      to_device(entry);
    } else if (input.resident || slot <= room) {
      plan.host.push_back(entry);
      plan.host_bytes += bytes;
      if (!input.resident) room -= slot;
    } else {
      ++plan.file_entries;
      plan.file_bytes += bytes;
    }
  }
  return plan;
}

TierHits expected_hits(const TraceRun& run, const TierPlanInput& input, const TierPlan& plan, CachePolicy policy) {
  uint64_t on_device = 0;
  const TraceRun rest = without_device(run, plan, on_device);
  const uint64_t budget = engine_cache_bytes(run.shapes, input.resident ? 0 : input.host);
  TierHits hits;
  double in_memory = 0, read = 0, bytes = 0;
  for (const TraceRun::Step& step : rest.steps) {
    if (step.prompt) continue;
    bytes += static_cast<double>(step.count * bytes_of(run.shapes, step.layer));
    if (input.resident) in_memory += static_cast<double>(step.count);
  }
  if (!input.resident) {
    const SimulationResult result =
        simulate(rest, make_policy(policy, run.shapes), make_extent_slots(run.shapes, budget, budget));
    in_memory = static_cast<double>(result.hits);
    read = static_cast<double>(result.misses);
    hits.read_bytes = static_cast<double>(result.miss_bytes + result.swap_bytes);
  }
  const auto tokens = static_cast<double>(std::max<int64_t>(run.decode_tokens, 1));
  const double all = std::max(static_cast<double>(on_device) + in_memory + read, 1.0);
  hits.device = static_cast<double>(on_device) / all;
  hits.host = in_memory / all;
  hits.file = read / all;
  hits.read_bytes /= tokens;
  hits.compute_bytes = bytes / tokens;
  return hits;
}

TierHits even_hits(const TierPlanInput& input, const TierPlan& plan) {
  std::vector<int> device(input.shapes.size(), 0), host(input.shapes.size(), 0);
  for (const auto& [layer, expert] : plan.device) ++device[static_cast<size_t>(layer)];
  for (const auto& [layer, expert] : plan.host) ++host[static_cast<size_t>(layer)];
  TierHits hits;
  double all = 0;
  for (size_t l = 0; l < input.shapes.size(); ++l) {
    const LayerShape& shape = input.shapes[l];
    const double picks = std::min(shape.top_k, shape.n_expert), experts = std::max(shape.n_expert, 1);
    const double on_device = picks * device[l] / experts, in_memory = picks * host[l] / experts;
    const auto bytes = static_cast<double>(shape.entry_bytes);
    all += picks;
    hits.device += on_device;
    hits.host += in_memory;
    hits.read_bytes += (picks - on_device - in_memory) * bytes;
    hits.compute_bytes += (picks - on_device) * bytes;
  }
  if (all > 0) {
    hits.device /= all;
    hits.host /= all;
    hits.file = std::max(1 - hits.device - hits.host, 0.0);
  }
  return hits;
}

}  // namespace moetier
