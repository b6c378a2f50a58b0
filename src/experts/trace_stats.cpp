#include "experts/trace_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/error.h"

namespace moetier {
namespace {

using Picks = std::span<const int32_t>;

int shared(Picks a, Picks b) {
  int n = 0;
  for (const int32_t id : a) n += std::ranges::find(b, id) != b.end() ? 1 : 0;
  return n;
}

/// The sums that are over all layers.
struct Sums {
  std::array<uint64_t, TraceStats::kLags.size()> overlapped{}, compared{};
  double independent = 0;                          // weighed by picks
  std::vector<double> union_experts, union_bytes;  // by power of two of the window
  std::vector<int> union_layers;
  bool bytes_known = true;
};

void add_popularity(Picks counts, TraceStats::Layer& layer) {
  std::vector<int32_t> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted, std::greater());
  const auto picks = static_cast<double>(layer.picks);
  double entropy = 0, squares = 0;
  for (const int32_t n : sorted) {
    if (n == 0) break;
    ++layer.used;
    const double share = n / picks;
    entropy -= share * std::log(share);
    const double of_tokens = static_cast<double>(n) / static_cast<double>(layer.tokens);
    squares += of_tokens * of_tokens;
  }
  layer.effective = std::exp(entropy);
  layer.independent = squares * static_cast<double>(layer.tokens) / picks;
  for (size_t p = 0; p < TraceStats::kParts.size(); ++p) {
    const size_t hottest = std::max<size_t>(sorted.size() / static_cast<size_t>(TraceStats::kParts[p]), 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < hottest; ++i) sum += static_cast<uint64_t>(sorted[i]);
    layer.hottest[p] = static_cast<double>(sum) / picks;
  }
}

void add_reuse(std::span<const Picks> tokens, size_t experts, TraceStats& stats) {
  std::vector<int64_t> last(experts, -1);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (const int32_t id : tokens[t]) {
      int64_t& its = last[static_cast<size_t>(id)];
      if (its < 0) {
        ++stats.first_picks;
      } else {
        const auto ago = static_cast<uint64_t>(static_cast<int64_t>(t) - its);
        ++stats.reuse[std::min<size_t>(static_cast<size_t>(std::bit_width(ago - 1)), stats.reuse.size() - 1)];
      }
      its = static_cast<int64_t>(t);
    }
  }
}

void add_unions(std::span<const Picks> tokens, size_t experts, uint64_t entry_bytes, Sums& sums) {
  std::vector<size_t> seen(experts);
  for (size_t power = 0; (size_t{1} << power) <= tokens.size(); ++power) {
    const size_t window = size_t{1} << power, windows = tokens.size() / window;
    std::ranges::fill(seen, 0);
    uint64_t distinct = 0;
    for (size_t t = 0; t < windows * window; ++t) {
      for (const int32_t id : tokens[t]) {
        size_t& its = seen[static_cast<size_t>(id)];
        if (its != t / window + 1) ++distinct;
        its = t / window + 1;
      }
    }
    if (sums.union_experts.size() <= power) {
      sums.union_experts.push_back(0);
      sums.union_bytes.push_back(0);
      sums.union_layers.push_back(0);
    }
    const double mean = static_cast<double>(distinct) / static_cast<double>(windows);
    sums.union_experts[power] += mean;
    sums.union_bytes[power] += mean * static_cast<double>(entry_bytes);
    ++sums.union_layers[power];
  }
}

void add_overlap(std::span<const Picks> tokens, TraceStats::Layer& layer, Sums& sums) {
  for (size_t l = 0; l < TraceStats::kLags.size(); ++l) {
    const auto lag = static_cast<size_t>(TraceStats::kLags[l]);
    uint64_t overlapped = 0, compared = 0;
    for (size_t t = lag; t < tokens.size(); ++t) {
      overlapped += static_cast<uint64_t>(shared(tokens[t], tokens[t - lag]));
      compared += tokens[t].size();
    }
    if (l == 0 && compared > 0) layer.overlap = static_cast<double>(overlapped) / static_cast<double>(compared);
    sums.overlapped[l] += overlapped;
    sums.compared[l] += compared;
  }
}

void add_layer(std::span<const Picks> tokens, TraceStats::Layer layer, TraceStats& stats, Sums& sums) {
  const auto experts = static_cast<size_t>(stats.n_expert);
  std::vector<int32_t> counts(experts, 0);
  for (const Picks picks : tokens) {
    layer.picks += picks.size();
    for (const int32_t id : picks) ++counts[static_cast<size_t>(id)];
  }
  layer.tokens = static_cast<int64_t>(tokens.size());
  add_popularity(counts, layer);
  add_reuse(tokens, experts, stats);
  add_unions(tokens, experts, layer.entry_bytes, sums);
  add_overlap(tokens, layer, sums);
  sums.independent += layer.independent * static_cast<double>(layer.picks);
  sums.bytes_known = sums.bytes_known && layer.entry_bytes > 0;
  stats.picks += layer.picks;
  stats.tokens = std::max(stats.tokens, layer.tokens);
  stats.layers.push_back(layer);
}

}  // namespace

TraceStats trace_stats(const RoutingTrace& trace, const std::string& name, TracePhase phase) {
  TraceStats stats;
  stats.n_expert = trace.n_expert;
  stats.top_k = trace.top_k;
  std::vector<std::vector<Picks>> by_layer(static_cast<size_t>(trace.n_layer));
  for (const Routing& r : trace.routings) {
    if (phase != TracePhase::all && r.prompt != (phase == TracePhase::prompt)) continue;
    by_layer.at(static_cast<size_t>(r.layer)).push_back(trace.picks(r));
  }
  Sums sums;
  for (size_t l = 0; l < by_layer.size(); ++l) {
    if (by_layer[l].empty()) continue;
    TraceStats::Layer layer;
    layer.layer = static_cast<int>(l);
    layer.entry_bytes = l < trace.entry_bytes.size() ? trace.entry_bytes[l] : 0;
    add_layer(by_layer[l], layer, stats, sums);
  }
  if (stats.layers.empty()) fail("{} has no {} tokens", name, phase == TracePhase::prompt ? "prompt" : "decoded");
  for (size_t l = 0; l < stats.overlap.size(); ++l) {
    stats.overlap[l] =
        sums.compared[l] == 0 ? -1 : static_cast<double>(sums.overlapped[l]) / static_cast<double>(sums.compared[l]);
  }
  stats.independent = sums.independent / static_cast<double>(stats.picks);
  for (size_t p = 0; p < sums.union_experts.size(); ++p) {
    // Only windows that every layer but a short last one has.
    if (sums.union_layers[p] * 2 < static_cast<int>(stats.layers.size())) break;
    const double layers = sums.union_layers[p], all = static_cast<double>(stats.layers.size());
    stats.unions.push_back(
        {int64_t{1} << p, sums.union_experts[p] / layers, sums.bytes_known ? sums.union_bytes[p] * all / layers : 0});
  }
  return stats;
}

}  // namespace moetier
