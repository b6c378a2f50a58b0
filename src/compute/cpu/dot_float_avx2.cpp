// AVX2 dots of float weights, and the plain float dots.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_avx2.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/float_dot_avx2.h"
#include "compute/cpu/float_rows.h"

namespace moetier::avx2 {
namespace {

/// What float_rows.h asks for.
struct Unit {
  static constexpr int kRows = 2, kSums = 4;

  /// kRows weight rows times kColumns activation rows: the dots of float_dot_avx2.h side by side, so that loads are
  /// shared and additions do not wait for one another.
  template <typename T, int kRows, int kColumns, bool kWithFlush>
  MOETIER_KERNEL static void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
    __m256 low[kRows][kColumns], high[kRows][kColumns];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kColumns; ++t) low[r][t] = high[r][t] = _mm256_setzero_ps();
    }
    const auto add = [&](__m256(*p)[kColumns], const T* const* wp, const float* const* xp, int64_t c) {
      __m256 activations[kColumns];
      for (int t = 0; t < kColumns; ++t) activations[t] = _mm256_loadu_ps(xp[t] + c);
      for (int r = 0; r < kRows; ++r) {
        const __m256 weights = num::widen8(wp[r] + c);
        for (int t = 0; t < kColumns; ++t) {
          p[r][t] = _mm256_add_ps(p[r][t], num::product8<kWithFlush>(weights, activations[t]));
        }
      }
    };
    int64_t c = 0;
    for (; c + 16 <= n; c += 16) {
      add(low, w, x, c);
      add(high, w, x, c + 8);
    }
    if (c < n) {
      const cpu::FloatTail<T, kRows, kColumns> tail(w, x, c, n);
      add(low, tail.w, tail.x, 0);
      add(high, tail.w, tail.x, 8);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kColumns; ++t) out[r][t] = num::tree16(low[r][t], high[r][t]);
    }
  }

  /// The smallest magnitude but zero among n values; infinity if there is none.
  template <typename T>
  MOETIER_KERNEL static float smallest_magnitude(const T* values, int64_t n) {
    // As integers, with 1 taken off, so that zero is the largest of all.
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), one = _mm256_set1_epi32(1);
    __m256i smallest = _mm256_set1_epi32(0x7f7fffff);
    const auto add = [&](const T* from) {
      const __m256i bits = _mm256_and_si256(_mm256_castps_si256(num::widen8(from)), magnitude);
      smallest = _mm256_min_epu32(smallest, _mm256_sub_epi32(bits, one));
    };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) add(values + i);
    if (i < n) {
      T tail[8] = {};
      for (int64_t k = 0; i + k < n; ++k) tail[k] = values[i + k];
      add(tail);
    }
    __m128i four = _mm_min_epu32(_mm256_castsi256_si128(smallest), _mm256_extracti128_si256(smallest, 1));
    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_add_epi32(four, _mm_set1_epi32(1))));
  }

  template <bool kWithFlush, typename T>
  static float dot16(const T* w, const float* x, int64_t n) {
    return num::dot16<kWithFlush>(w, x, n);
  }
};

}  // namespace

void add_float_dots(DotTable& table) {
  cpu::add_float_rows<Unit, num::F16, num::BF16>(table);
}

}  // namespace moetier::avx2

namespace moetier {

const FloatDots* avx2_float_dots() {
  using namespace avx2;
  static constexpr FloatDots dots = cpu::plain_float_dots<Unit, num::F16, num::BF16>();
  return &dots;
}

}  // namespace moetier

#else

#include "compute/cpu/float_dot.h"

namespace moetier {
const FloatDots* avx2_float_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
