// The inner steps of recurrent layers, one table per instruction set; all tables give the same bits.
#pragma once

#include <cstdint>

#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

/// Rows of recurrent state are whole numbers of this many elements.
inline constexpr int64_t kStateStep = 16;

/// One position's step of the gated delta rule for some rows of a head's state.
struct DeltaStep {
  const float* from = nullptr;  ///< the rows before, [width] each
  float* to = nullptr;          ///< the rows after; may be `from`
  int64_t rows = 0, width = 0;
  const float* key = nullptr;    ///< [width]
  const float* query = nullptr;  ///< [width]
  const float* decay = nullptr;  ///< [width]
  const float* value = nullptr;  ///< [rows]
  float beta = 0, scale = 0;
  float* out = nullptr;  ///< [rows]
};

/// One position's step of Mamba 2 for some rows of a head's state.
struct ScanStep {
  const float* from = nullptr;
  float* to = nullptr;
  int64_t rows = 0, width = 0;
  const float* b = nullptr;  ///< [width]
  const float* c = nullptr;  ///< [width]
  const float* x = nullptr;  ///< [rows]
  float decay = 0, step = 0, skip = 0;
  float* out = nullptr;  ///< [rows]
};

struct RecurrentOps {
  /// out[c] = f(sum of inputs[j][c] * weights[j * stride + c], j ascending from +0, + bias[c]) for c < n; f is silu or
  /// nothing; bias may be nullptr.
  void (*conv)(const float* const* inputs, const float* weights, int64_t stride, int taps, const float* bias, bool silu,
               int64_t n, float* out);
  void (*delta)(const DeltaStep& step);
  void (*scan)(const ScanStep& step);
};

/// `isa` must be one that this machine can run, not `automatic`.
const RecurrentOps& recurrent_ops(Isa isa);

const RecurrentOps& recurrent_ops_portable();
#if defined(__x86_64__)
const RecurrentOps& recurrent_ops_avx2();
#elif defined(__aarch64__)
const RecurrentOps& recurrent_ops_neon();
#endif

}  // namespace moetier::cpu
