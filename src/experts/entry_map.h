// Where every entry (one expert of one layer) lies in the model's files. Knows names and bytes, no architecture.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gguf/reader.h"

namespace moetier {

enum class Projection : uint8_t { gate, up, down, gate_up };
inline constexpr int kMaxSlices = 3;  ///< gate, up, down; or gate_up, down

/// One projection of all experts of a layer: expert e's slice starts at offset + e * slice_bytes of the shard.
struct SliceSource {
  Projection projection = Projection::gate;
  TensorType type = TensorType::f32;
  int64_t columns = 0, rows = 0;  ///< of one expert's matrix
  int shard = 0;
  uint64_t offset = 0;       ///< bytes from the start of the shard's file
  uint64_t slice_bytes = 0;  ///< of one expert
};

/// The entries of one MoE layer.
struct LayerEntries {
  int layer = 0;  ///< the model's layer number
  int n_expert = 0;
  int top_k = 0;
  std::vector<SliceSource> slices;  ///< first projections first
  uint64_t entry_bytes() const;     ///< of one entry
};

/// All MoE layers, ascending.
struct EntryMap {
  std::vector<LayerEntries> layers;
  int executed = std::numeric_limits<int>::max();  ///< blocks from this number on are never run
  uint64_t total_bytes() const;                    ///< the bank: all entries
  /// Sum over layers of entry bytes * min(top_k, n_expert): the most one token can need.
  uint64_t token_cycle_bytes() const;
  const LayerEntries* find(int layer) const;  ///< nullptr if that layer has no experts

  /// Reads `blk.N.ffn_{gate,up,down,gate_up}_exps.weight`. Inconsistent expert counts or shapes are errors naming the
  /// tensor. `top_k` (from expert_used_count) applies to all layers. Blocks from `layers` on
  /// (those that predict further tokens) are left out: they are never run.
  static EntryMap from_gguf(const GgufFile& file, int top_k, int layers = std::numeric_limits<int>::max());
};

}  // namespace moetier
