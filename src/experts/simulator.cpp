#include "experts/simulator.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "experts/slot_layout.h"
#include "experts/slot_memory.h"

namespace moetier {
namespace {

constexpr size_t kMostPicks = size_t{1} << 30;  // of a run

/// Lays a trace out as visits.
class Planner {
 public:
  Planner(const RoutingTrace& trace, const std::string& name, std::vector<LayerShape> shapes, std::vector<int> layers,
          const TraceRunOptions& options)
      : trace_(trace), name_(name), options_(options), layers_(std::move(layers)), rows_(layers_.size()) {
    run_.shapes = std::move(shapes);
    as_decoded_ = options.text_as_decoded && std::ranges::all_of(trace.routings, &Routing::prompt);
    place_.resize(static_cast<size_t>(layers_.back()) + 1, -1);
    for (size_t i = 0; i < layers_.size(); ++i) place_[static_cast<size_t>(layers_[i])] = static_cast<int>(i);
  }

  TraceRun plan() {
    const std::vector<Routing>& all = trace_.routings;
    for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
      const bool prompt = all[begin].prompt && !as_decoded_;
      int64_t tokens = 1;
      for (end = begin + 1; end < all.size() && all[end].prompt == all[begin].prompt; ++end) {
        if (all[end].token == all[end - 1].token) continue;
        if (!prompt) break;
        ++tokens;
      }
      if (prompt && !options_.prompt) continue;
      (prompt ? run_.prompt_tokens : run_.decode_tokens) += tokens;
      add(std::span(all).subspan(begin, end - begin), prompt);
    }
    return std::move(run_);
  }

 private:
  /// One prompt, or one decoded token.
  void add(std::span<const Routing> routings, bool prompt) {
    for (std::vector<const Routing*>& rows : rows_) rows.clear();
    for (const Routing& r : routings) {
      const auto layer = static_cast<size_t>(r.layer);
      if (layer < place_.size() && place_[layer] >= 0) rows_[static_cast<size_t>(place_[layer])].push_back(&r);
    }
    const size_t n = run_.shapes.size();
    for (size_t layer = 0; layer < n; ++layer) {
      const std::vector<const Routing*>& rows = rows_[layer * layers_.size() / n];
      const size_t most = prompt && options_.ubatch > 0 ? static_cast<size_t>(options_.ubatch) : rows.size();
      for (size_t first = 0; first < rows.size(); first += most)
        visit(static_cast<int>(layer), std::span(rows).subspan(first, std::min(most, rows.size() - first)), prompt);
    }
  }

  void visit(int layer, std::span<const Routing* const> rows, bool prompt) {
    TraceRun::Step step{layer, static_cast<int64_t>(rows.size()), prompt, run_.picks.size(), 0};
    const int experts = run_.shapes[static_cast<size_t>(layer)].n_expert;
    for (const Routing* r : rows) {
      for (uint32_t i = r->first; i < r->first + r->count; ++i) {
        if (!trace_.residency.empty() && trace_.residency[i] < 0) continue;  // chosen, and not computed
        const int32_t expert = trace_.ids[i];
        if (expert >= experts)
          fail("{} picks expert {} of layer {}, but there are {} experts", name_, expert, r->layer, experts);
        run_.picks.push_back(expert);
      }
    }
    if (run_.picks.size() > kMostPicks) fail("{} is too long to be replayed on {} layers", name_, run_.shapes.size());
    step.count = run_.picks.size() - step.first;
    if (step.count > 0) run_.steps.push_back(step);
  }

  const RoutingTrace& trace_;
  const std::string& name_;
  TraceRunOptions options_;
  bool as_decoded_ = false;
  std::vector<int> layers_;  // the trace's MoE layers
  std::vector<int> place_;   // by layer number: the place in layers_, or -1
  std::vector<std::vector<const Routing*>> rows_;
  TraceRun run_;
};

/// The layers that a trace has routings of, ascending.
std::vector<int> layers_of(const RoutingTrace& trace, const std::string& name, const TraceRunOptions& options) {
  std::vector<char> seen(static_cast<size_t>(std::max(trace.n_layer, 0)), 0);
  for (const Routing& r : trace.routings) seen.at(static_cast<size_t>(r.layer)) = 1;
  std::vector<int> layers;
  for (size_t l = 0; l < seen.size(); ++l) {
    if (seen[l] != 0) layers.push_back(static_cast<int>(l));
  }
  if (layers.empty()) fail("{} holds no routing", name);
  if (options.layers > static_cast<int>(layers.size()))
    usage_error("{} has {} layers with experts, so the first {} cannot be taken", name, layers.size(), options.layers);
  if (options.layers > 0) layers.resize(static_cast<size_t>(options.layers));
  return layers;
}

}  // namespace

uint64_t TraceRun::cycle_bytes() const {
  uint64_t bytes = 0;
  for (const LayerShape& s : shapes) bytes += s.entry_bytes * static_cast<uint64_t>(std::min(s.top_k, s.n_expert));
  return bytes;
}

uint64_t TraceRun::bank_bytes() const {
  uint64_t bytes = 0;
  for (const LayerShape& s : shapes) bytes += s.entry_bytes * static_cast<uint64_t>(s.n_expert);
  return bytes;
}

TraceRun run_of(const RoutingTrace& trace, const std::string& name, const TraceRunOptions& options) {
  std::vector<int> layers = layers_of(trace, name, options);
  std::vector<LayerShape> shapes;
  for (const int layer : layers) {
    const auto l = static_cast<size_t>(layer);
    const uint64_t bytes = l < trace.entry_bytes.size() ? trace.entry_bytes[l] : 0;
    if (bytes == 0)
      usage_error("{} does not tell how many bytes an entry of layer {} has; give --model or --shape", name, layer);
    shapes.push_back({trace.n_expert, trace.top_k, bytes, bytes});
  }
  return Planner(trace, name, std::move(shapes), std::move(layers), options).plan();
}

TraceRun run_on(const RoutingTrace& trace, const std::string& name, std::vector<LayerShape> shapes,
                const TraceRunOptions& options) {
  if (shapes.empty()) fail("{} cannot be replayed on a model without experts", name);
  for (LayerShape& shape : shapes) shape.top_k = trace.top_k;
  return Planner(trace, name, std::move(shapes), layers_of(trace, name, options), options).plan();
}

uint64_t engine_cache_bytes(std::span<const LayerShape> shapes, uint64_t budget) {
  uint64_t widest = 0, bank = 0;
  int64_t picks = 1;
  for (const LayerShape& shape : shapes) {
    widest = std::max(widest, shape.slot_bytes);
    bank += shape.slot_bytes * static_cast<uint64_t>(shape.n_expert);
    picks = std::max<int64_t>(picks, std::min(shape.top_k, shape.n_expert));
  }
  return cache_share(budget, static_cast<uint64_t>(transit_slots(picks, widest, budget)) * widest, bank);
}

double SimulationResult::hit_percent() const {
  const uint64_t all = hits + misses;
  return all == 0 ? 0 : 100.0 * static_cast<double>(hits) / static_cast<double>(all);
}

SimulationResult simulate(const TraceRun& run, std::unique_ptr<Policy> policy, std::unique_ptr<Slots> slots,
                          std::span<const std::pair<int, int>> profile) {
  CacheTable table(run.shapes, std::move(policy), std::move(slots));
  if (!profile.empty()) table.prefill(profile);
  SimulationResult result;
  for (const TraceRun::Step& step : run.steps) {
    const Visit& visit = table.visit(step.layer, run.picks_of(step), step.rows);
    const uint64_t bytes = run.shapes[static_cast<size_t>(step.layer)].entry_bytes;
    const auto hits = static_cast<uint64_t>(std::ranges::count(visit.placements, Outcome::hit, &Placement::outcome));
    const uint64_t misses = visit.placements.size() - hits;
    (step.prompt ? result.prompt_hits : result.hits) += hits;
    (step.prompt ? result.prompt_misses : result.misses) += misses;
    (step.prompt ? result.prompt_miss_bytes : result.miss_bytes) += misses * bytes;
    table.end_visit();
  }
  const CacheCounters counters = table.counters();
  result.swap_bytes = counters.miss_bytes - result.miss_bytes - result.prompt_miss_bytes;
  result.evictions = counters.evictions;
  result.capacity_bytes = table.slots().capacity_bytes();
  result.slots = table.slots().count();
  return result;
}

uint64_t compulsory_misses(const TraceRun& run) {
  std::vector<std::vector<char>> seen;
  for (const LayerShape& shape : run.shapes) seen.emplace_back(static_cast<size_t>(shape.n_expert), 0);
  uint64_t misses = 0;
  for (const TraceRun::Step& step : run.steps) {
    for (const int32_t expert : run.picks_of(step)) {
      char& its = seen[static_cast<size_t>(step.layer)][static_cast<size_t>(expert)];
      if (its == 0 && !step.prompt) ++misses;
      its = 1;
    }
  }
  return misses;
}

}  // namespace moetier
