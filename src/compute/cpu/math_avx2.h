// math.h eight values at a time: the same operations in the same order, so the same bits. Only for units named
// *_avx2.cpp.
#pragma once

#include <immintrin.h>

#include "compute/cpu/math.h"

namespace moetier::num {

MOETIER_INLINE __m256 flush8(__m256 x) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  return _mm256_andnot_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(kFlush), _CMP_LT_OQ), x);
}

MOETIER_INLINE __m256 recip8(__m256 x) {
  const __m256i guess = _mm256_set1_epi32(static_cast<int>(kRecipGuess));
  __m256 y = _mm256_castsi256_ps(_mm256_sub_epi32(guess, _mm256_castps_si256(x)));
  const __m256 two = _mm256_set1_ps(2.0f);
  for (int i = 0; i < 4; ++i) y = _mm256_mul_ps(y, _mm256_sub_ps(two, _mm256_mul_ps(x, y)));
  return y;
}

MOETIER_INLINE __m256 exp8(__m256 x) {
  const auto step = [](__m256 p, __m256 r, float c) { return _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c)); };
  const __m256 round = _mm256_set1_ps(kRound);
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-kExpLimit)), _mm256_set1_ps(kExpLimit));
  const __m256 shifted = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), round);
  const __m256 k = _mm256_sub_ps(shifted, round);
  const __m256i integer = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
  const __m256 r = _mm256_sub_ps(_mm256_sub_ps(x, _mm256_mul_ps(k, _mm256_set1_ps(kLn2High))),
                                 _mm256_mul_ps(k, _mm256_set1_ps(kLn2Low)));
  __m256 p = _mm256_set1_ps(kExpC6);
  p = step(p, r, kExpC5);
  p = step(p, r, kExpC4);
  p = step(p, r, kExpC3);
  p = step(p, r, kExpC2);
  p = step(p, r, 1.0f);
  p = step(p, r, 1.0f);
  const __m256i scale = _mm256_slli_epi32(_mm256_add_epi32(integer, _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
}

MOETIER_INLINE __m256 sigmoid8(__m256 x) {
  const __m256 negative = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
  return recip8(_mm256_add_ps(_mm256_set1_ps(1.0f), exp8(negative)));
}

MOETIER_INLINE __m256 silu8(__m256 x) {
  return _mm256_mul_ps(x, sigmoid8(x));
}

MOETIER_INLINE __m256 relu8(__m256 x) {
  return _mm256_max_ps(_mm256_setzero_ps(), x);
}

MOETIER_INLINE __m256 gelu8(__m256 x) {
  const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
  const __m256 inner = _mm256_add_ps(x, _mm256_mul_ps(_mm256_set1_ps(kGeluCubic), cube));
  return _mm256_mul_ps(x, sigmoid8(_mm256_mul_ps(_mm256_set1_ps(kGeluScale), inner)));
}

/// tree16 of partials 0-7 (low) and 8-15 (high).
MOETIER_INLINE float tree16(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// max_tree16 of partials 0-7 (low) and 8-15 (high).
MOETIER_INLINE float max_tree16(__m256 low, __m256 high) {
  const __m256 eight = _mm256_max_ps(low, high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// A mask of the first n lanes, 0 <= n <= 8, for maskload and maskstore.
MOETIER_INLINE __m256i lanes8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace moetier::num
