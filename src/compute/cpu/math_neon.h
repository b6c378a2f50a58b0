// math.h four values at a time: the same operations in the same order, so the same bits. Only for units named
// *_neon*.cpp. Multiplications and additions stand apart: vmla and vfma may fuse.
#pragma once

#include <arm_neon.h>

#include "compute/cpu/math.h"

namespace moetier::num {

/// a > b ? a : b; vmaxq_f32 would give a NaN where one of them is.
MOETIER_INLINE float32x4_t max4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
/// a < b ? a : b.
MOETIER_INLINE float32x4_t min4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}

/// x where the lanes of `keep` are ones, else +0.
MOETIER_INLINE float32x4_t masked4(float32x4_t x, uint32x4_t keep) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), keep));
}

MOETIER_INLINE float32x4_t flush4(float32x4_t x) {
  const uint32x4_t small = vcaltq_f32(x, vdupq_n_f32(kFlush));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), small));
}

MOETIER_INLINE float32x4_t recip4(float32x4_t x) {
  float32x4_t y = vreinterpretq_f32_u32(vsubq_u32(vdupq_n_u32(kRecipGuess), vreinterpretq_u32_f32(x)));
  const float32x4_t two = vdupq_n_f32(2.0f);
  for (int i = 0; i < 4; ++i) y = vmulq_f32(y, vsubq_f32(two, vmulq_f32(x, y)));
  return y;
}

MOETIER_INLINE float32x4_t exp4(float32x4_t x) {
  const auto step = [](float32x4_t p, float32x4_t r, float c) { return vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(c)); };
  const float32x4_t round = vdupq_n_f32(kRound);
  x = min4(max4(x, vdupq_n_f32(-kExpLimit)), vdupq_n_f32(kExpLimit));
  const float32x4_t shifted = vaddq_f32(vmulq_f32(x, vdupq_n_f32(kLog2E)), round);
  const float32x4_t k = vsubq_f32(shifted, round);
  const uint32x4_t integer = vsubq_u32(vreinterpretq_u32_f32(shifted), vreinterpretq_u32_f32(round));
  const float32x4_t r =
      vsubq_f32(vsubq_f32(x, vmulq_f32(k, vdupq_n_f32(kLn2High))), vmulq_f32(k, vdupq_n_f32(kLn2Low)));
  float32x4_t p = vdupq_n_f32(kExpC6);
  p = step(p, r, kExpC5);
  p = step(p, r, kExpC4);
  p = step(p, r, kExpC3);
  p = step(p, r, kExpC2);
  p = step(p, r, 1.0f);
  p = step(p, r, 1.0f);
  return vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(vaddq_u32(integer, vdupq_n_u32(127)), 23)));
}

MOETIER_INLINE float32x4_t sigmoid4(float32x4_t x) {
  return recip4(vaddq_f32(vdupq_n_f32(1.0f), exp4(vnegq_f32(x))));
}

MOETIER_INLINE float32x4_t silu4(float32x4_t x) {
  return vmulq_f32(x, sigmoid4(x));
}

MOETIER_INLINE float32x4_t relu4(float32x4_t x) {
  return max4(vdupq_n_f32(0.0f), x);
}

MOETIER_INLINE float32x4_t gelu4(float32x4_t x) {
  const float32x4_t cube = vmulq_f32(vmulq_f32(x, x), x);
  const float32x4_t inner = vaddq_f32(x, vmulq_f32(vdupq_n_f32(kGeluCubic), cube));
  return vmulq_f32(x, sigmoid4(vmulq_f32(vdupq_n_f32(kGeluScale), inner)));
}

/// The 16 partial sums (or maxima) of a row: partial 4i + k is lane k of p[i].
struct Partials {
  float32x4_t p[4];

  MOETIER_INLINE explicit Partials(float start) { p[0] = p[1] = p[2] = p[3] = vdupq_n_f32(start); }

  /// tree16.
  MOETIER_INLINE float tree() const {
    const float32x4_t four = vaddq_f32(vaddq_f32(p[0], p[2]), vaddq_f32(p[1], p[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  /// max_tree16.
  MOETIER_INLINE float max_tree() const {
    const float32x4_t four = max4(max4(p[0], p[2]), max4(p[1], p[3]));
    const float32x4_t two = max4(four, vextq_f32(four, four, 2));
    return max(vgetq_lane_f32(two, 0), vgetq_lane_f32(two, 1));
  }
};

/// The last two levels of tree16 for four rows at once: lane i is the total of v[i].
MOETIER_INLINE float32x4_t totals_of_4(const float32x4_t* v) {
  const auto halves = [](float32x4_t x, float32x4_t y) {  // x 0+2, 1+3, y 0+2, 1+3
    const float64x2_t a = vreinterpretq_f64_f32(x), b = vreinterpretq_f64_f32(y);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)));
  };
  const float32x4_t ab = halves(v[0], v[1]), cd = halves(v[2], v[3]);
  return vaddq_f32(vuzp1q_f32(ab, cd), vuzp2q_f32(ab, cd));
}

/// Ones in the first n lanes (all for n >= 4, none for n <= 0).
MOETIER_INLINE uint32x4_t lanes4(int n) {
  static constexpr int32_t kIndex[4] = {0, 1, 2, 3};
  return vcgtq_s32(vdupq_n_s32(n), vld1q_s32(kIndex));
}

/// Four f16, widened exactly.
MOETIER_INLINE float32x4_t widen_f16x4(const uint16_t* from) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

}  // namespace moetier::num
