// The steps of attention over one block of 64 positions, for several query heads that share keys and values; one table
// per instruction set, and all tables give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

/// Widths of keys, values and queries are padded to multiples of this with zeros, which change no sum.
inline constexpr int64_t kWidthStep = 16;

/// Rows of keys or values, one per position; `width` is a multiple of kWidthStep.
struct BlockRows {
  const std::byte* first = nullptr;  ///< row of the first position that is asked for
  size_t stride = 0;                 ///< bytes from position to position
  int64_t width = 0;
  bool half = false;  ///< f16, else f32
};

/// What softmax has gathered so far for neighbouring queries: their maxima, their sums of weights, and `width`
/// unnormalised sums of values of each, query after query.
struct AttentionStates {
  float* m = nullptr;
  float* l = nullptr;
  float* o = nullptr;
};

/// Scores and weights stand in rows of kPagePositions, one row per query, a position at its place in the block.
/// 0 <= first < last <= kPagePositions and n >= 1 throughout.
struct AttentionOps {
  /// s_i[j] = scale * dot16(q_i, k_j) for queries i < n (q_i at q + i * width) and positions first <= j < last.
  void (*scores)(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s);
  /// Turns the scores of n queries that see [first, last) into weights in place, and gives their maxima and sums.
  void (*softmax)(float* s, int64_t n, int first, int last, float* m, float* l);
  /// o_i += sum of p_i[j] * v_j over first <= j < last, ascending (o_i at o + i * width).
  void (*weigh)(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o);
  /// Merges the states of the next block into `states`, n queries of each.
  void (*merge)(const AttentionStates& states, const AttentionStates& next, int64_t n, int64_t width);
  /// out[c] = o[c] * (1 / l) for c < n.
  void (*finish)(const float* o, float l, int64_t n, float* out);
};

/// `isa` must be one that this machine can run, not `automatic`.
const AttentionOps& attention_ops(Isa isa);

const AttentionOps& attention_ops_portable();
#if defined(__x86_64__)
const AttentionOps& attention_ops_avx2();
const AttentionOps& attention_ops_avx512();
#elif defined(__aarch64__)
const AttentionOps& attention_ops_neon();
#endif

}  // namespace moetier::cpu
