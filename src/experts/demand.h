// What tokens ask for: the bytes of the distinct entries that one token picked, at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "experts/entry_map.h"
#include "experts/layer_shape.h"

namespace moetier {

/// Fed with every fetch; looks at those of a single row. A token begins where the layer number stops increasing.
class Demand {
 public:
  explicit Demand(const EntryMap& map) {
    for (const LayerEntries& layer : map.layers) entry_bytes_.push_back(layer.entry_bytes());
  }
  explicit Demand(std::span<const LayerShape> layers) {
    for (const LayerShape& layer : layers) entry_bytes_.push_back(layer.entry_bytes);
  }
  /// `layer`: place among MoE layers; `entries`: distinct experts picked.
  void note(size_t layer, size_t entries, int64_t rows) {
    if (layer <= last_) sum_ = 0;
    last_ = layer;
    if (rows != 1) return;
    const uint64_t bytes = entry_bytes_[layer] * entries;
    layer_bytes_ = std::max(layer_bytes_, bytes);
    sum_ += bytes;
    token_bytes_ = std::max(token_bytes_, sum_);
  }
  uint64_t token_bytes() const { return token_bytes_; }  ///< the most of one token
  uint64_t layer_bytes() const { return layer_bytes_; }  ///< the most of one token in one layer

 private:
  std::vector<uint64_t> entry_bytes_;
  size_t last_ = 0;
  uint64_t sum_ = 0, token_bytes_ = 0, layer_bytes_ = 0;
};

}  // namespace moetier
