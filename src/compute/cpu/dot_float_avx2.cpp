// AVX2 dots of float weights, and the plain float dots.
#if defined(__AVX2__) && defined(__F16C__)

#include <limits>

#include "compute/cpu/dot_avx2.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/float_dot_avx2.h"

namespace moetier::avx2 {
namespace {

/// kRows weight rows times kColumns activation rows: the dots of float_dot_avx2.h side by side, so that loads are
/// shared and additions do not wait for one another.
template <typename T, int kRows, int kColumns, bool kWithFlush>
MOETIER_KERNEL void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
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
    // Columns beyond n count as 0 * 0, which changes no sum.
    T tail_w[kRows][16] = {};
    float tail_x[kColumns][16] = {};
    const T* wp[kRows];
    const float* xp[kColumns];
    for (int r = 0; r < kRows; ++r) {
      wp[r] = tail_w[r];
      for (int64_t i = 0; c + i < n; ++i) tail_w[r][i] = w[r][c + i];
    }
    for (int t = 0; t < kColumns; ++t) {
      xp[t] = tail_x[t];
      for (int64_t i = 0; c + i < n; ++i) tail_x[t][i] = x[t][c + i];
    }
    add(low, wp, xp, 0);
    add(high, wp, xp, 8);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kColumns; ++t) out[r][t] = num::tree16(low[r][t], high[r][t]);
  }
}

/// The smallest magnitude but zero among n values; infinity if there is none.
template <typename T>
MOETIER_KERNEL float smallest_magnitude(const T* values, int64_t n) {
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

/// kRows rows from `r` on, times all activation rows.
template <typename T, int kRows, bool kWithFlush>
MOETIER_KERNEL void float_panel(const T* const* rows, int64_t columns, int64_t r, const std::byte* const* x,
                                float* const* out, int n) {
  const auto* const* activations = reinterpret_cast<const float* const*>(x);
  constexpr int kColumns = 4 / kRows;
  int t = 0;
  for (; t + kColumns <= n; t += kColumns) {
    float sums[kRows][kColumns];
    dots<T, kRows, kColumns, kWithFlush>(rows, activations + t, columns, sums);
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kColumns; ++k) out[t + k][r + i] = sums[i][k];
    }
  }
  for (; t < n; ++t) {
    float sums[kRows][1];
    dots<T, kRows, 1, kWithFlush>(rows, activations + t, columns, sums);
    for (int i = 0; i < kRows; ++i) out[t][r + i] = sums[i][0];
  }
}

template <typename T>
void float_rows(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                int n) {
  const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(w.data + static_cast<size_t>(r) * w.row_bytes); };
  // No product is below the flush limit if the smallest weight times the smallest activation is not. Then a flush
  // changes nothing but the sign of a zero, which no sum can show (none is ever -0). Finding out pays with many
  // activation rows.
  constexpr int kFew = 4;
  double smallest = 0;
  if (n >= kFew && last - first >= kFew) {
    smallest = std::numeric_limits<double>::infinity();
    for (int t = 0; t < n; ++t) {
      const double s = smallest_magnitude(reinterpret_cast<const float*>(x[t]), w.columns);
      if (s < smallest) smallest = s;
    }
  }
  const auto is_safe = [&](int64_t r) {
    return smallest > 0 && static_cast<double>(smallest_magnitude(row(r), w.columns)) * smallest >= 0x1p-100;
  };
  int64_t r = first;
  for (; n == 1 && r + 4 <= last; r += 4) {
    const T* rows[4] = {row(r), row(r + 1), row(r + 2), row(r + 3)};
    float_panel<T, 4, true>(rows, w.columns, r - first, x, out, n);
  }
  for (; r + 2 <= last; r += 2) {
    const T* rows[2] = {row(r), row(r + 1)};
    if (is_safe(r) && is_safe(r + 1)) {
      float_panel<T, 2, false>(rows, w.columns, r - first, x, out, n);
    } else {
      float_panel<T, 2, true>(rows, w.columns, r - first, x, out, n);
    }
  }
  for (; r < last; ++r) {
    const T* rows[1] = {row(r)};
    float_panel<T, 1, true>(rows, w.columns, r - first, x, out, n);
  }
}

template <bool kWithFlush>
float dot_f32(const float* w, const float* x, int64_t n) {
  return num::dot16<kWithFlush>(w, x, n);
}
template <bool kWithFlush>
float dot_f16(const uint16_t* w, const float* x, int64_t n) {
  return num::dot16<kWithFlush>(reinterpret_cast<const num::F16*>(w), x, n);
}
template <bool kWithFlush>
float dot_bf16(const uint16_t* w, const float* x, int64_t n) {
  return num::dot16<kWithFlush>(reinterpret_cast<const num::BF16*>(w), x, n);
}

}  // namespace

constinit const DotFn kDotF32 = float_rows<float>;
constinit const DotFn kDotF16 = float_rows<num::F16>;
constinit const DotFn kDotBF16 = float_rows<num::BF16>;

}  // namespace moetier::avx2

namespace moetier {

const FloatDots* avx2_float_dots() {
  using namespace avx2;
  static constexpr FloatDots dots{dot_f32<false>, dot_f16<false>, dot_bf16<false>,
                                  dot_f32<true>,  dot_f16<true>,  dot_bf16<true>};
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
