// AVX-512 dots of float weights: the 16 partial sums of a dot are one vector.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

// GCC's own header starts some vectors undefined on purpose, and GCC 12 warns of that.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "compute/cpu/dot_avx512.h"
#include "compute/cpu/float_dot_avx2.h"
#include "compute/cpu/float_rows.h"

namespace moetier::avx512 {
namespace {

using num::BF16;
using num::F16;

/// The weights that `mask` names, widened exactly; the others are 0 and not read.
MOETIER_KERNEL __m512 widen16(__mmask16 mask, const float* w) {
  return _mm512_maskz_loadu_ps(mask, w);
}
MOETIER_KERNEL __m512 widen16(__mmask16 mask, const F16* w) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, w));
}
MOETIER_KERNEL __m512 widen16(__mmask16 mask, const BF16* w) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, w)), 16));
}

/// The first n of sixteen lanes.
MOETIER_KERNEL __mmask16 lanes16(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : (1u << n) - 1);
}

MOETIER_KERNEL float tree16(__m512 p) {
  return num::tree16(_mm512_castps512_ps256(p), _mm512_extractf32x8_ps(p, 1));
}

/// What float_rows.h asks for.
struct Unit {
  static constexpr int kRows = 4, kSums = 16;

  /// kRows weight rows times kColumns activation rows, side by side, so that loads are shared and additions do not wait
  /// for one another. Columns beyond n count as 0 * 0, which changes no sum, since none is ever -0.
  template <typename T, int kRows, int kColumns, bool kWithFlush>
  MOETIER_KERNEL static void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
    __m512 p[kRows][kColumns];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kColumns; ++t) p[r][t] = _mm512_setzero_ps();
    }
    const auto add = [&](__mmask16 mask, int64_t c) {
      __m512 activations[kColumns];
      for (int t = 0; t < kColumns; ++t) activations[t] = _mm512_maskz_loadu_ps(mask, x[t] + c);
      for (int r = 0; r < kRows; ++r) {
        const __m512 weights = widen16(mask, w[r] + c);
        for (int t = 0; t < kColumns; ++t) {
          const __m512 product = _mm512_mul_ps(weights, activations[t]);
          p[r][t] = _mm512_add_ps(p[r][t], kWithFlush ? flush16(product) : product);
        }
      }
    };
    int64_t c = 0;
    for (; c + 16 <= n; c += 16) add(0xffff, c);
    if (c < n) add(lanes16(n - c), c);
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kColumns; ++t) out[r][t] = tree16(p[r][t]);
    }
  }

  /// The smallest magnitude but zero among n values; infinity if there is none.
  template <typename T>
  MOETIER_KERNEL static float smallest_magnitude(const T* values, int64_t n) {
    // As integers, with 1 taken off, so that zero is the largest of all.
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi32(1);
    __m512i smallest = _mm512_set1_epi32(0x7f7fffff);
    for (int64_t i = 0; i < n; i += 16) {
      const __m512i bits = _mm512_and_si512(_mm512_castps_si512(widen16(lanes16(n - i), values + i)), magnitude);
      smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(bits, one));
    }
    return std::bit_cast<float>(_mm512_reduce_min_epu32(smallest) + 1);
  }
};

}  // namespace

void add_float_dots(DotTable& table) {
  cpu::add_float_rows<Unit, F16, BF16>(table);
}

}  // namespace moetier::avx512

#endif
