// The operations that see one row of floats at a time, one table per instruction set; all tables give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

void from_q8_0_portable(const std::byte* x, int64_t n, float* out);

struct RowOps {
  /// out = (x * 1/sqrt(mean(x^2) + eps)) * weight; weight may be nullptr. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  /// out = a + b; out may be either.
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  /// out = activation(gate) * up; out may be either.
  void (*silu_glu)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_glu)(const float* gate, const float* up, int64_t n, float* out);
  void (*sigmoid_glu)(const float* gate, const float* up, int64_t n, float* out);
  void (*relu_glu)(const float* gate, const float* up, int64_t n, float* out);
  /// out = a * b; out may be either.
  void (*multiply)(const float* a, const float* b, int64_t n, float* out);
  /// out = factor * x; out may be x.
  void (*scale)(float factor, const float* x, int64_t n, float* out);
  /// Rotates `pairs` pairs of x in place: elements i and i + pairs, or 2i and 2i + 1.
  void (*rotate_halves)(float* x, const float* cosines, const float* sines, int64_t pairs);
  void (*rotate_neighbours)(float* x, const float* cosines, const float* sines, int64_t pairs);
  /// out = softmax(x), the router's; out may be x.
  void (*softmax)(const float* x, int64_t n, float* out);
  /// f16 and back, as quant/half.h does it.
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*from_f16)(const uint16_t* x, int64_t n, float* out);
  /// Widens n weights of Q8_0, exactly; n is a multiple of 32.
  void (*from_q8_0)(const std::byte* x, int64_t n, float* out) = from_q8_0_portable;
};

/// `isa` must be one that this machine can run, not `automatic`.
const RowOps& row_ops(Isa isa);

const RowOps& row_ops_portable();
#if defined(__x86_64__)
const RowOps& row_ops_avx2();
#elif defined(__aarch64__)
const RowOps& row_ops_neon();
#endif

}  // namespace moetier::cpu
