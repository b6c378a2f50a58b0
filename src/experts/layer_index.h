// From a model's layer number to the place among its MoE layers.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "experts/entry_map.h"

namespace moetier {

class LayerIndex {
 public:
  explicit LayerIndex(const EntryMap& map) {
    for (size_t i = 0; i < map.layers.size(); ++i) {
      const auto layer = static_cast<size_t>(map.layers[i].layer);
      if (layer >= places_.size()) places_.resize(layer + 1, -1);
      places_[layer] = static_cast<int>(i);
    }
  }
  /// An error for a layer without experts.
  size_t of(int layer) const {
    if (layer < 0 || static_cast<size_t>(layer) >= places_.size() || places_[static_cast<size_t>(layer)] < 0)
      fail("layer {} has no experts in the store", layer);
    return static_cast<size_t>(places_[static_cast<size_t>(layer)]);
  }

 private:
  std::vector<int> places_;  // -1: none
};

}  // namespace moetier
