#include "experts/slot_layout.h"

#include <algorithm>

#include "io/read_file.h"

namespace moetier {
namespace {

uint64_t block_floor(uint64_t n) {
  return n / kReadBlock * kReadBlock;
}
uint64_t block_ceil(uint64_t n) {
  return block_floor(n + kReadBlock - 1);
}

}  // namespace

SlotLayout::SlotLayout(const LayerEntries& layer) : slices_(layer.slices.size()) {
  for (size_t s = 0; s < slices_; ++s) {
    const SliceSource& source = layer.slices[s];
    uint64_t widest = 0;
    for (int e = 0; e < layer.n_expert; ++e) {
      const uint64_t begin = source.offset + static_cast<uint64_t>(e) * source.slice_bytes;
      widest = std::max(widest, block_ceil(begin + source.slice_bytes) - block_floor(begin));
    }
    regions_[s] = {source.shard, source.offset, source.slice_bytes, slot_bytes_};
    slot_bytes_ += widest;
  }
}

SliceRead SlotLayout::slice(int expert, size_t index) const {
  const Region& region = regions_[index];
  const uint64_t begin = region.offset + static_cast<uint64_t>(expert) * region.slice_bytes;
  SliceRead read;
  read.shard = region.shard;
  read.offset = block_floor(begin);
  read.lead = begin - read.offset;
  read.need = read.lead + region.slice_bytes;
  read.bytes = block_ceil(read.need);
  read.place = region.place;
  return read;
}

std::vector<LayerShape> model_shapes(const EntryMap& map) {
  std::vector<LayerShape> shapes;
  for (const LayerEntries& layer : map.layers)
    shapes.push_back({layer.n_expert, layer.top_k, layer.entry_bytes(), SlotLayout(layer).slot_bytes()});
  return shapes;
}

uint64_t widest_slot(const EntryMap& map) {
  uint64_t widest = 0;
  for (const LayerEntries& layer : map.layers) widest = std::max(widest, SlotLayout(layer).slot_bytes());
  return widest;
}

int64_t transit_slots(const EntryMap& map, uint64_t budget_bytes) {
  int64_t picks = 1;
  for (const LayerEntries& layer : map.layers) picks = std::max<int64_t>(picks, std::min(layer.top_k, layer.n_expert));
  return transit_slots(picks, widest_slot(map), budget_bytes);
}

int64_t transit_slots(int64_t picks, uint64_t slot_bytes, uint64_t budget_bytes) {
  if (budget_bytes == 0 || slot_bytes == 0) return picks;
  return std::clamp<int64_t>(static_cast<int64_t>(budget_bytes / slot_bytes / 2), 1, picks);
}

}  // namespace moetier
