// The float dot of docs/numbers.md: 16 partial sums by column mod 16 in ascending column, then tree16. With flush it is
// the dot of float weights (the matmul), without it the dot of attention.
//
// One function for each type of the first operand; the second is always f32. Any n >= 0, no alignment needed. Code
// inside an AVX2 unit may inline float_dot_avx2.h instead; the bits are the same.
#pragma once

#include <cstdint>

#include "compute/cpu/cpu_compute.h"

namespace moetier {

struct FloatDots {
  float (*f32)(const float* w, const float* x, int64_t n);
  float (*f16)(const uint16_t* w, const float* x, int64_t n);
  float (*bf16)(const uint16_t* w, const float* x, int64_t n);
  float (*f32_flush)(const float* w, const float* x, int64_t n);
  float (*f16_flush)(const uint16_t* w, const float* x, int64_t n);
  float (*bf16_flush)(const uint16_t* w, const float* x, int64_t n);
};

/// The unit's functions; `isa` must be available (Isa::automatic is resolved).
const FloatDots& float_dots(Isa isa);

/// The units; nullptr where the compiler has none.
const FloatDots& portable_float_dots();
const FloatDots* avx2_float_dots();
const FloatDots* neon_float_dots();

}  // namespace moetier
