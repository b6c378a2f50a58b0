// What the encoders share. Internal to this room.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/low_bit_blocks.h"

namespace moetier::encoders {

// The encoders round, step by step, as those of the stock quantizer do, so that the same floats give the same bytes.
// Values must be finite.
void encode_block(const float* x, BlockQ4_0& out);
void encode_block(const float* x, BlockQ4_1& out);
void encode_block(const float* x, BlockQ5_0& out);
void encode_block(const float* x, BlockQ5_1& out);
void encode_block(const float* x, BlockQ8_0& out);
void encode_block(const float* x, BlockMXFP4& out);
void encode_block(const float* x, BlockQ4_K& out);
void encode_block(const float* x, BlockQ5_K& out);
void encode_block(const float* x, BlockQ6_K& out);
void encode_block(const float* x, BlockQ2_K& out);
void encode_block(const float* x, BlockQ3_K& out);
void encode_block(const float* x, BlockIQ4_NL& out);
void encode_block(const float* x, BlockIQ4_XS& out);
void encode_block(const float* x, BlockTQ1_0& out);
void encode_block(const float* x, BlockTQ2_0& out);
void encode_block(const float* x, BlockNVFP4& out);
void encode_block(const float* x, BlockIQ3_XXS& out);
void encode_block(const float* x, BlockIQ3_S& out);
void encode_block(const float* x, BlockIQ2_S& out);

/// A block's scale as f16. Fails if it is too large for that: the block would decode to infinities.
inline uint16_t f16_scale(float scale) {
  const uint16_t h = f32_to_f16(scale);
  if ((h & 0x7c00u) == 0x7c00u) fail("a block needs the scale {}, which is beyond the range of f16", scale);
  return h;
}

/// 1 / d, or 0 where that is not a number to work with (d zero or so small that its reciprocal overflows).
inline float reciprocal_or_zero(float d) {
  const float r = d != 0 ? 1.0f / d : 0.0f;
  return std::isfinite(r) ? r : 0.0f;
}

/// top / largest, for multiples 0..top of a step: 0 if nothing is above 0, or so little that the step is 0 in any case.
inline float steps_per_unit(float top, float largest) {
  const float r = largest > 0 ? top / largest : 0.0f;
  return std::isfinite(r) ? r : 0.0f;
}

/// Rounds half to even; exact for |x| < 2^22. Adding 1.5 * 2^23 leaves no room for a fraction.
inline float round_even(float x) {
  return (x + 12582912.0f) - 12582912.0f;
}

/// The element of largest magnitude, with its sign; the first of equals.
inline float signed_peak(const float* x, int n) {
  float peak = 0, magnitude = 0;
  for (int i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    if (a > magnitude) {
      magnitude = a;
      peak = x[i];
    }
  }
  return peak;
}

}  // namespace moetier::encoders
