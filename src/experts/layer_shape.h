// What a cache must know of a MoE layer.
#pragma once

#include <cstdint>

namespace moetier {

/// `layer` in tables, policies and slots always means the index among MoE layers, ascending.
struct LayerShape {
  int n_expert = 0;
  int top_k = 0;
  uint64_t entry_bytes = 0;  ///< of one entry in the file
  uint64_t slot_bytes = 0;   ///< of a slot that can hold it
};

}  // namespace moetier
