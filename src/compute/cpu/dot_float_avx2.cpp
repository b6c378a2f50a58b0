// AVX2 dots of float weights, and the plain float dots.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_avx2.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/float_dot_avx2.h"

namespace moetier::avx2 {
namespace {

/// kRows weight rows times kColumns activation rows: the dots of float_dot_avx2.h side by side, so that loads are
/// shared and additions do not wait for one another.
template <typename T, int kRows, int kColumns>
MOETIER_INLINE void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
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
        p[r][t] = _mm256_add_ps(p[r][t], num::product8<true>(weights, activations[t]));
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

/// kRows rows from `r` on, times all activation rows.
template <typename T, int kRows>
MOETIER_INLINE void float_panel(const WeightMatrix& w, int64_t r, int64_t first, const std::byte* const* x,
                                float* const* out, int n) {
  const T* rows[kRows];
  for (int i = 0; i < kRows; ++i) {
    rows[i] = reinterpret_cast<const T*>(w.data + static_cast<size_t>(r + i) * w.row_bytes);
  }
  const auto* const* activations = reinterpret_cast<const float* const*>(x);
  constexpr int kColumns = 4 / kRows;
  int t = 0;
  for (; t + kColumns <= n; t += kColumns) {
    float sums[kRows][kColumns];
    dots<T, kRows, kColumns>(rows, activations + t, w.columns, sums);
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kColumns; ++k) out[t + k][r - first + i] = sums[i][k];
    }
  }
  for (; t < n; ++t) {
    float sums[kRows][1];
    dots<T, kRows, 1>(rows, activations + t, w.columns, sums);
    for (int i = 0; i < kRows; ++i) out[t][r - first + i] = sums[i][0];
  }
}

template <typename T>
void float_rows(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                int n) {
  int64_t r = first;
  if (n == 1) {
    for (; r + 4 <= last; r += 4) float_panel<T, 4>(w, r, first, x, out, n);
  }
  for (; r + 2 <= last; r += 2) float_panel<T, 2>(w, r, first, x, out, n);
  for (; r < last; ++r) float_panel<T, 1>(w, r, first, x, out, n);
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
