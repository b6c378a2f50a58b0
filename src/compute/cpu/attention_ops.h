// Attention of one query head over one block of 64 positions, one table per instruction set; all tables give the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

/// Rows of keys or values, one per position of a block; `width` is a multiple of 8.
struct BlockRows {
  const std::byte* first = nullptr;  ///< position 0 of the block
  size_t stride = 0;                 ///< bytes from position to position
  int64_t width = 0;
  bool half = false;  ///< f16, else f32
};

/// What softmax has gathered so far: o is the unnormalised sum of `width` values.
struct AttentionState {
  float m = 0, l = 0;
  float* o = nullptr;
};

struct AttentionOps {
  /// The state of one block alone: positions [first, last) of it, 0 <= first < last <= 64, are visible.
  void (*block)(const float* q, const BlockRows& keys, const BlockRows& values, int first, int last, float scale,
                AttentionState& state);
  /// Merges the state of the next block into `state`.
  void (*merge)(AttentionState& state, const AttentionState& next, int64_t width);
  /// out[c] = o[c] * (1 / l) for c < n.
  void (*finish)(const AttentionState& state, int64_t n, float* out);
};

/// `isa` must be one that this machine can run, not `automatic`.
const AttentionOps& attention_ops(Isa isa);

const AttentionOps& attention_ops_portable();
#if defined(__x86_64__)
const AttentionOps& attention_ops_avx2();
#endif

}  // namespace moetier::cpu
