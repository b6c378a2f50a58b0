// Which layers share a slot size, and how long an extent is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/layer_shape.h"

namespace moetier {

struct SlotClasses {
  std::vector<uint64_t> slot_bytes;  ///< by class, descending
  std::vector<uint64_t> bank_slots;  ///< by class: entries of all its layers
  std::vector<int> class_of;         ///< by layer
  uint64_t extent_bytes = 0;

  /// Classes span at most 12.5 %. The extent is a few slots long, chosen so that little of it is lost to any class.
  explicit SlotClasses(std::span<const LayerShape> shapes);
};

}  // namespace moetier
