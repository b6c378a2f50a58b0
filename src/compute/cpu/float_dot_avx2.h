// The float dot for AVX2 units, to be inlined. Only for files named *_avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/cpu/math_avx2.h"

namespace moetier::num {

/// Eight weights from `w`, widened exactly. T: float, F16 or BF16 (tags for what a uint16_t holds).
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

MOETIER_INLINE __m256 widen8(const float* w) {
  return _mm256_loadu_ps(w);
}
MOETIER_INLINE __m256 widen8(const F16* w) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
MOETIER_INLINE __m256 widen8(const BF16* w) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <bool kWithFlush>
MOETIER_INLINE __m256 product8(__m256 w, __m256 x) {
  const __m256 p = _mm256_mul_ps(w, x);
  if constexpr (kWithFlush) return flush8(p);
  return p;
}

/// The dot of n columns.
template <bool kWithFlush, typename T>
MOETIER_INLINE float dot16(const T* w, const float* x, int64_t n) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  int64_t c = 0;
  for (; c + 16 <= n; c += 16) {
    low = _mm256_add_ps(low, product8<kWithFlush>(widen8(w + c), _mm256_loadu_ps(x + c)));
    high = _mm256_add_ps(high, product8<kWithFlush>(widen8(w + c + 8), _mm256_loadu_ps(x + c + 8)));
  }
  if (c < n) {
    // Columns beyond n count as 0 * 0, and adding +0 changes no partial sum, since none is ever -0.
    T tail_w[16] = {};
    float tail_x[16] = {};
    for (int64_t i = 0; c + i < n; ++i) tail_w[i] = w[c + i], tail_x[i] = x[c + i];
    low = _mm256_add_ps(low, product8<kWithFlush>(widen8(tail_w), _mm256_loadu_ps(tail_x)));
    high = _mm256_add_ps(high, product8<kWithFlush>(widen8(tail_w + 8), _mm256_loadu_ps(tail_x + 8)));
  }
  return tree16(low, high);
}

}  // namespace moetier::num
