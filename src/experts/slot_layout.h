// How an entry's slices lie in a slot, so that direct reads of whole blocks land in place without a copy.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "experts/entry_map.h"
#include "experts/layer_shape.h"

namespace moetier {

/// What must be read for one slice of one entry, and where in the slot it goes.
struct SliceRead {
  int shard = 0;
  uint64_t offset = 0;  ///< in the shard, a multiple of kReadBlock
  uint64_t bytes = 0;   ///< whole blocks
  uint64_t need = 0;    ///< of them up to the slice's end
  uint64_t place = 0;   ///< in the slot, where the first block goes
  uint64_t lead = 0;    ///< from there to the slice's first byte
};

/// The slots of one layer: one region per slice, each wide enough for any expert's slice with the blocks at its ends.
class SlotLayout {
 public:
  explicit SlotLayout(const LayerEntries& layer);
  size_t slices() const { return slices_; }
  uint64_t slot_bytes() const { return slot_bytes_; }  ///< whole blocks
  SliceRead slice(int expert, size_t index) const;

 private:
  struct Region {
    int shard = 0;
    uint64_t offset = 0, slice_bytes = 0, place = 0;
  };
  std::array<Region, kMaxSlices> regions_{};
  size_t slices_ = 0;
  uint64_t slot_bytes_ = 0;
};

/// What a cache must know of the layers of a model, slots included.
std::vector<LayerShape> model_shapes(const EntryMap& map);

/// The widest slot of all layers, in which any entry fits.
uint64_t widest_slot(const EntryMap& map);

/// How a budget is split between homes in transit and the cache. Homes, each as wide as the widest slot, are for
/// entries that are computed without being admitted: as many as a token picks in one layer, but no more than half of
/// the budget, and at least one. A budget of 0 is transit only.
int64_t transit_slots(const EntryMap& map, uint64_t budget_bytes);
/// The same, where a token picks at most `picks` entries in a layer and the widest slot is known.
int64_t transit_slots(int64_t picks, uint64_t slot_bytes, uint64_t budget_bytes);

}  // namespace moetier
