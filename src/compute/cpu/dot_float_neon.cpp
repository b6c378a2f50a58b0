// NEON dots of float weights, and the plain float dots.
#if defined(__aarch64__)

#include <limits>

#include "compute/cpu/dot_neon.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/float_dot_neon.h"

namespace moetier::neon {
namespace {

using num::Partials;

/// kRows weight rows times kColumns activation rows: the dots of float_dot_neon.h side by side, so that loads are
/// shared and additions do not wait for one another.
template <typename T, int kRows, int kColumns, bool kWithFlush>
MOETIER_INLINE void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
  float32x4_t sums[kRows][kColumns][4];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kColumns; ++t) {
      for (int i = 0; i < 4; ++i) sums[r][t][i] = vdupq_n_f32(0.0f);
    }
  }
  const auto add16 = [&](const T* const* wp, const float* const* xp, int64_t c) {
    for (int i = 0; i < 4; ++i) {
      float32x4_t activations[kColumns];
      for (int t = 0; t < kColumns; ++t) activations[t] = vld1q_f32(xp[t] + c + 4 * i);
      for (int r = 0; r < kRows; ++r) {
        const float32x4_t weights = num::widen4(wp[r] + c + 4 * i);
        for (int t = 0; t < kColumns; ++t) {
          sums[r][t][i] = vaddq_f32(sums[r][t][i], num::product4<kWithFlush>(weights, activations[t]));
        }
      }
    }
  };
  int64_t c = 0;
  for (; c + 16 <= n; c += 16) add16(w, x, c);
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
    add16(wp, xp, 0);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kColumns; ++t) {
      Partials row(0.0f);
      for (int i = 0; i < 4; ++i) row.p[i] = sums[r][t][i];
      out[r][t] = row.tree();
    }
  }
}

/// The smallest magnitude but zero among n values; infinity if there is none.
template <typename T>
MOETIER_INLINE float smallest_magnitude(const T* values, int64_t n) {
  // As integers, with 1 taken off, so that zero is the largest of all.
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffffu), one = vdupq_n_u32(1);
  uint32x4_t smallest = vdupq_n_u32(0x7f7fffffu);
  const auto add = [&](const T* from) {
    const uint32x4_t bits = vandq_u32(vreinterpretq_u32_f32(num::widen4(from)), magnitude);
    smallest = vminq_u32(smallest, vsubq_u32(bits, one));
  };
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) add(values + i);
  if (i < n) {
    T tail[4] = {};
    for (int64_t k = 0; i + k < n; ++k) tail[k] = values[i + k];
    add(tail);
  }
  return std::bit_cast<float>(vminvq_u32(smallest) + 1u);
}

/// kRows rows from `r` on, times all activation rows.
template <typename T, int kRows, bool kWithFlush>
MOETIER_INLINE void float_panel(const T* const* rows, int64_t columns, int64_t r, const std::byte* const* x,
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

}  // namespace moetier::neon

namespace moetier {

const FloatDots* neon_float_dots() {
  using namespace neon;
  static constexpr FloatDots dots{dot_f32<false>, dot_f16<false>, dot_bf16<false>,
                                  dot_f32<true>,  dot_f16<true>,  dot_bf16<true>};
  return &dots;
}

}  // namespace moetier

#else

#include "compute/cpu/float_dot.h"

namespace moetier {
const FloatDots* neon_float_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
