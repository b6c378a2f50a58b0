#include "compute/cpu/activation_codes.h"

#if defined(__AVX2__)

#include <limits>

#include "compute/cpu/math_avx2.h"

namespace moetier {
namespace {

constexpr float kOver127 = 1.0f / 127.0f;

/// Largest magnitude of n columns (a multiple of 8); a NaN if one of them is.
inline float largest_magnitude(const float* x, int n) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 largest = _mm256_setzero_ps(), nans = _mm256_setzero_ps();
  for (int i = 0; i < n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    // NaNs never win, so the order of the comparisons does not matter.
    largest = _mm256_max_ps(_mm256_andnot_ps(sign, v), largest);
    nans = _mm256_or_ps(nans, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(nans) != 0) return std::numeric_limits<float>::quiet_NaN();
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

inline __m256i codes8(const float* x, __m256 r) {
  const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), r);
  return _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f)));
}

/// The codes of 32 columns in order.
inline __m256i codes32(const float* x, __m256 r) {
  const __m256i low = _mm256_packs_epi32(codes8(x, r), codes8(x + 8, r));
  const __m256i high = _mm256_packs_epi32(codes8(x + 16, r), codes8(x + 24, r));
  // The packs work within halves: dwords come out as columns 0 2 4 6 | 1 3 5 7 (times four).
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

/// Sums of each 4 codes.
inline __m256i sums4(__m256i codes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1));
}

/// [sum of codes 0..15, sum of codes 16..31] in the low dwords of the halves.
inline __m256i sums16(__m256i codes) {
  __m256i sums = sums4(codes);
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  return _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
}

void encode32(const float* x, Codes32* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 32; ++b, x += 32) {
    Codes32& block = out[b];
    const float largest = largest_magnitude(x, 32);
    const bool encoded = largest >= num::kFlush;  // false for a NaN too
    const __m256 r = _mm256_mul_ps(_mm256_set1_ps(127.0f), num::recip8(_mm256_set1_ps(largest)));
    const __m256i codes = encoded ? codes32(x, r) : _mm256_setzero_si256();
    const __m256i sums = sums16(codes);
    block.scale = encoded ? num::round_scale(largest * kOver127) : num::flush(largest);
    block.sum = _mm256_extract_epi32(sums, 0) + _mm256_extract_epi32(sums, 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.codes), codes);
  }
}

void encode256(const float* x, Codes256* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 256; ++b, x += 256) {
    Codes256& block = out[b];
    const float largest = largest_magnitude(x, 256);
    const bool encoded = largest >= num::kFlush;  // false for a NaN too
    const __m256 r = _mm256_mul_ps(_mm256_set1_ps(127.0f), num::recip8(_mm256_set1_ps(largest)));
    block.scale = encoded ? largest * kOver127 : num::flush(largest);
    for (int k = 0; k < 8; ++k) {
      const __m256i codes = encoded ? codes32(x + 32 * k, r) : _mm256_setzero_si256();
      const __m256i sums = sums16(codes);
      const int low = _mm256_extract_epi32(sums, 0), high = _mm256_extract_epi32(sums, 4);
      block.sums16[2 * k] = static_cast<int16_t>(low);
      block.sums16[2 * k + 1] = static_cast<int16_t>(high);
      block.sums32[k] = static_cast<int16_t>(low + high);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.codes + 32 * k), codes);
    }
  }
}

}  // namespace

const ActivationEncoders* avx2_activation_encoders() {
  static constexpr ActivationEncoders encoders{encode32, encode256};
  return &encoders;
}

}  // namespace moetier

#else

namespace moetier {
const ActivationEncoders* avx2_activation_encoders() {
  return nullptr;
}
}  // namespace moetier

#endif
