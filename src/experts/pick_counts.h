// How often each entry was picked: what a profile is made from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experts/entry_map.h"
#include "experts/trace.h"

namespace moetier {

/// Counts by the model's layer number and expert.
class PickCounts {
 public:
  PickCounts(int n_layer, int n_expert);
  void add(int layer, std::span<const int32_t> ids);
  /// All tokens of a trace; picks that were dropped count, since the router wanted them. Errors name `name`: a layer or
  /// an expert that there is not.
  void add(const RoutingTrace& trace, const std::string& name);

  int n_layer() const { return n_layer_; }
  int n_expert() const { return n_expert_; }
  uint64_t of(int layer, int expert) const { return counts_[place(layer, expert)]; }
  uint64_t total() const;
  /// (layer, expert) of all entries that were picked, most picks first; equal ones by layer and expert.
  std::vector<std::pair<int, int>> ranked() const;

 private:
  size_t place(int layer, int expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(n_expert_) + static_cast<size_t>(expert);
  }
  int n_layer_, n_expert_;
  std::vector<uint64_t> counts_;
};

/// The layers (all of them, not only those with experts) and experts that a model's profile is for. `layers`: those
/// that are run.
std::pair<int, int> profile_shape(const EntryMap& map, int layers);

}  // namespace moetier
