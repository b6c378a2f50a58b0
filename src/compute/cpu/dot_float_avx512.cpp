// AVX-512 dots of float weights: the 16 partial sums of a dot are one vector.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include <limits>

#include "compute/cpu/dot_avx512.h"
#include "compute/cpu/float_dot_avx2.h"

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

/// kRows weight rows times kColumns activation rows, side by side, so that loads are shared and additions do not wait
/// for one another. Columns beyond n count as 0 * 0, which changes no sum, since none is ever -0.
template <typename T, int kRows, int kColumns, bool kWithFlush>
MOETIER_KERNEL void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
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
MOETIER_KERNEL float smallest_magnitude(const T* values, int64_t n) {
  // As integers, with 1 taken off, so that zero is the largest of all.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi32(1);
  __m512i smallest = _mm512_set1_epi32(0x7f7fffff);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(widen16(lanes16(n - i), values + i)), magnitude);
    smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(bits, one));
  }
  return std::bit_cast<float>(_mm512_reduce_min_epu32(smallest) + 1);
}

/// kRows rows from `r` on, times all activation rows.
template <typename T, int kRows, bool kWithFlush>
MOETIER_KERNEL void float_panel(const T* const* rows, int64_t columns, int64_t r, const std::byte* const* x,
                                float* const* out, int n) {
  const auto* const* activations = reinterpret_cast<const float* const*>(x);
  constexpr int kColumns = 4;
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
  for (; r + 4 <= last; r += 4) {
    const T* rows[4] = {row(r), row(r + 1), row(r + 2), row(r + 3)};
    if (is_safe(r) && is_safe(r + 1) && is_safe(r + 2) && is_safe(r + 3)) {
      float_panel<T, 4, false>(rows, w.columns, r - first, x, out, n);
    } else {
      float_panel<T, 4, true>(rows, w.columns, r - first, x, out, n);
    }
  }
  for (; r < last; ++r) {
    const T* rows[1] = {row(r)};
    float_panel<T, 1, true>(rows, w.columns, r - first, x, out, n);
  }
}

}  // namespace

constinit const DotFn kDotF32 = float_rows<float>;
constinit const DotFn kDotF16 = float_rows<F16>;
constinit const DotFn kDotBF16 = float_rows<BF16>;

}  // namespace moetier::avx512

#endif
