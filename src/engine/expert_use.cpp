#include "engine/expert_use.h"

#include <algorithm>

namespace moetier {

ExpertUse::ExpertUse(const EntryMap& map) {
  for (const LayerEntries& layer : map.layers) {
    const auto index = static_cast<size_t>(layer.layer);
    if (index >= layers_.size()) layers_.resize(index + 1);
    layers_[index].entry_bytes = layer.entry_bytes();
    layers_[index].seen.assign(static_cast<size_t>(layer.n_expert), 0);
    total_ += layer.n_expert;
  }
}

void ExpertUse::note(int layer, std::span<const int32_t> ids) {
  picks_ += ids.size();
  if (layer < 0 || static_cast<size_t>(layer) >= layers_.size()) return;
  Layer& l = layers_[static_cast<size_t>(layer)];
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= l.seen.size() || l.seen[static_cast<size_t>(id)] != 0) continue;
    l.seen[static_cast<size_t>(id)] = 1;
    ++used_;
    used_bytes_ += l.entry_bytes;
  }
}

void ExpertUse::reset() {
  for (Layer& layer : layers_) std::fill(layer.seen.begin(), layer.seen.end(), uint8_t{0});
  picks_ = used_bytes_ = 0;
  used_ = 0;
}

}  // namespace moetier
