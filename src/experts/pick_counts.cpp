#include "experts/pick_counts.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace moetier {

PickCounts::PickCounts(int n_layer, int n_expert) : n_layer_(n_layer), n_expert_(n_expert) {
  if (n_layer < 1 || n_expert < 1) fail("there are no entries to count: {} layers of {} experts", n_layer, n_expert);
  counts_.resize(static_cast<size_t>(n_layer) * static_cast<size_t>(n_expert), 0);
}

void PickCounts::add(int layer, std::span<const int32_t> ids) {
  if (layer < 0 || layer >= n_layer_) fail("picks of layer {} cannot be counted: there are {} layers", layer, n_layer_);
  for (const int32_t id : ids) {
    if (id < 0 || id >= n_expert_) fail("a pick of expert {} cannot be counted: a layer has {} experts", id, n_expert_);
    ++counts_[place(layer, id)];
  }
}

void PickCounts::add(const RoutingTrace& trace, const std::string& name) {
  for (const Routing& r : trace.routings) {
    const std::span<const int32_t> ids = trace.picks(r);
    const int32_t most = *std::ranges::max_element(ids);
    if (r.layer >= n_layer_ || most >= n_expert_) {
      fail("{} has a pick of expert {} in layer {}, and the model has {} layers of {} experts", name, most, r.layer,
           n_layer_, n_expert_);
    }
    add(r.layer, ids);
  }
}

uint64_t PickCounts::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

std::vector<std::pair<int, int>> PickCounts::ranked() const {
  std::vector<std::pair<int, int>> entries;
  for (int layer = 0; layer < n_layer_; ++layer) {
    for (int expert = 0; expert < n_expert_; ++expert) {
      if (of(layer, expert) > 0) entries.emplace_back(layer, expert);
    }
  }
  std::ranges::stable_sort(entries, [&](std::pair<int, int> a, std::pair<int, int> b) {
    return of(a.first, a.second) > of(b.first, b.second);
  });
  return entries;
}

std::pair<int, int> profile_shape(const EntryMap& map, int layers) {
  if (map.layers.empty()) fail("the model has no experts, so there is nothing to rank");
  int most = 0;
  for (const LayerEntries& layer : map.layers) most = std::max(most, layer.n_expert);
  return {std::max(map.layers.back().layer + 1, layers), most};
}

}  // namespace moetier
