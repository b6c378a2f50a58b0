// NEON dots of float weights, and the plain float dots.
#if defined(__aarch64__)

#include "compute/cpu/dot_neon.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/float_dot_neon.h"
#include "compute/cpu/float_rows.h"

namespace moetier::neon {
namespace {

using num::Partials;

/// What float_rows.h asks for.
struct Unit {
  static constexpr int kRows = 2, kSums = 4;

  /// kRows weight rows times kColumns activation rows: the dots of float_dot_neon.h side by side, so that loads are
  /// shared and additions do not wait for one another.
  template <typename T, int kRows, int kColumns, bool kWithFlush>
  MOETIER_INLINE static void dots(const T* const* w, const float* const* x, int64_t n, float (*out)[kColumns]) {
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
  MOETIER_INLINE static float smallest_magnitude(const T* values, int64_t n) {
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
};

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

constinit const DotFn kDotF32 = cpu::float_rows<Unit, float>;
constinit const DotFn kDotF16 = cpu::float_rows<Unit, num::F16>;
constinit const DotFn kDotBF16 = cpu::float_rows<Unit, num::BF16>;

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
