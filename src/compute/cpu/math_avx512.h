// math.h sixteen values at a time: the same operations in the same order, so the same bits. Only for units named
// *_avx512.cpp.
#pragma once

#include <immintrin.h>

#include "compute/cpu/math.h"
#include "compute/cpu/math_avx2.h"

namespace moetier::num {

MOETIER_INLINE __m512 exp16(__m512 x) {
  const auto step = [](__m512 p, __m512 r, float c) { return _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(c)); };
  const __m512 round = _mm512_set1_ps(kRound);
  x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-kExpLimit)), _mm512_set1_ps(kExpLimit));
  const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), round);
  const __m512 k = _mm512_sub_ps(shifted, round);
  const __m512i integer = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(round));
  const __m512 r = _mm512_sub_ps(_mm512_sub_ps(x, _mm512_mul_ps(k, _mm512_set1_ps(kLn2High))),
                                 _mm512_mul_ps(k, _mm512_set1_ps(kLn2Low)));
  __m512 p = _mm512_set1_ps(kExpC6);
  p = step(p, r, kExpC5);
  p = step(p, r, kExpC4);
  p = step(p, r, kExpC3);
  p = step(p, r, kExpC2);
  p = step(p, r, 1.0f);
  p = step(p, r, 1.0f);
  const __m512i scale = _mm512_slli_epi32(_mm512_add_epi32(integer, _mm512_set1_epi32(127)), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(scale));
}

/// tree16 of sixteen partial sums.
MOETIER_INLINE float tree16(__m512 p) {
  return tree16(_mm512_castps512_ps256(p), _mm512_extractf32x8_ps(p, 1));
}

/// max_tree16 of sixteen partial maxima.
MOETIER_INLINE float max_tree16(__m512 p) {
  return max_tree16(_mm512_castps512_ps256(p), _mm512_extractf32x8_ps(p, 1));
}

}  // namespace moetier::num
