// The float dot for NEON units, to be inlined. Only for files named *_neon*.cpp.
#pragma once

#include <cstdint>

#include "compute/cpu/math_neon.h"

namespace moetier::num {

/// Tags for what a uint16_t holds.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

/// Four weights from `w`, widened exactly.
MOETIER_INLINE float32x4_t widen4(const float* w) {
  return vld1q_f32(w);
}
MOETIER_INLINE float32x4_t widen4(const F16* w) {
  return widen_f16x4(&w->bits);
}
MOETIER_INLINE float32x4_t widen4(const BF16* w) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&w->bits), 16));
}

template <bool kWithFlush>
MOETIER_INLINE float32x4_t product4(float32x4_t w, float32x4_t x) {
  const float32x4_t p = vmulq_f32(w, x);
  if constexpr (kWithFlush) return flush4(p);
  return p;
}

/// Adds 16 columns.
template <bool kWithFlush, typename T>
MOETIER_INLINE void add_products(Partials& sums, const T* w, const float* x) {
  for (int i = 0; i < 4; ++i) {
    sums.p[i] = vaddq_f32(sums.p[i], product4<kWithFlush>(widen4(w + 4 * i), vld1q_f32(x + 4 * i)));
  }
}

/// The dot of n columns.
template <bool kWithFlush, typename T>
MOETIER_INLINE float dot16(const T* w, const float* x, int64_t n) {
  Partials sums(0.0f);
  int64_t c = 0;
  for (; c + 16 <= n; c += 16) add_products<kWithFlush>(sums, w + c, x + c);
  if (c < n) {
    // Columns beyond n count as 0 * 0, and adding +0 changes no partial sum, since none is ever -0.
    T tail_w[16] = {};
    float tail_x[16] = {};
    for (int64_t i = 0; c + i < n; ++i) tail_w[i] = w[c + i], tail_x[i] = x[c + i];
    add_products<kWithFlush>(sums, tail_w, tail_x);
  }
  return sums.tree();
}

}  // namespace moetier::num
