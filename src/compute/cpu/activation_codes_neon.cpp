#include "compute/cpu/activation_codes.h"

#if defined(__aarch64__)

#include <limits>

#include "compute/cpu/math_neon.h"

namespace moetier {
namespace {

constexpr float kOver127 = 1.0f / 127.0f;

/// Largest magnitude of n columns (a multiple of 8); a NaN if one of them is.
inline float largest_magnitude(const float* x, int n) {
  float32x4_t largest[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
  uint32x4_t numbers = vdupq_n_u32(~0u);
  for (int i = 0; i < n; i += 8) {
    for (int k = 0; k < 2; ++k) {
      const float32x4_t v = vld1q_f32(x + i + 4 * k);
      // NaNs are found apart, so the order of the comparisons does not matter.
      largest[k] = vmaxq_f32(vabsq_f32(v), largest[k]);
      numbers = vandq_u32(numbers, vceqq_f32(v, v));
    }
  }
  if (vminvq_u32(numbers) == 0) return std::numeric_limits<float>::quiet_NaN();
  return vmaxvq_f32(vmaxq_f32(largest[0], largest[1]));
}

inline int32x4_t codes4(const float* x, float32x4_t r) {
  const float32x4_t v = vmulq_f32(vld1q_f32(x), r);
  return vcvtnq_s32_f32(num::max4(num::min4(v, vdupq_n_f32(127.0f)), vdupq_n_f32(-127.0f)));
}

/// The codes of 16 columns.
inline int8x16_t codes16(const float* x, float32x4_t r) {
  const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(codes4(x, r)), vreinterpretq_s16_s32(codes4(x + 4, r)));
  const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(codes4(x + 8, r)), vreinterpretq_s16_s32(codes4(x + 12, r)));
  return vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}

/// Encodes n columns (a multiple of 16), hands out the sum of each 16 codes, and returns the scale.
template <typename OnSum>
inline float encode_block(const float* x, int n, int8_t* codes, OnSum on_sum) {
  const float largest = largest_magnitude(x, n);
  const bool encoded = largest >= num::kFlush;  // false for a NaN too
  const float32x4_t r = vmulq_f32(vdupq_n_f32(127.0f), num::recip4(vdupq_n_f32(largest)));
  for (int i = 0; i < n; i += 16) {
    const int8x16_t sixteen = encoded ? codes16(x + i, r) : vdupq_n_s8(0);
    vst1q_s8(codes + i, sixteen);
    on_sum(i / 16, vaddlvq_s8(sixteen));
  }
  return encoded ? largest * kOver127 : num::flush(largest);
}

void encode32(const float* x, Codes32* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 32; ++b, x += 32) {
    Codes32& block = out[b];
    block.sum = 0;
    block.scale = num::round_scale(encode_block(x, 32, block.codes, [&](int, int sum) { block.sum += sum; }));
  }
}

void encode256(const float* x, Codes256* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 256; ++b, x += 256) {
    Codes256& block = out[b];
    block.scale = encode_block(x, 256, block.codes, [&](int k, int16_t sum) { block.sums16[k] = sum; });
    vst1q_s16(block.sums32, vpaddq_s16(vld1q_s16(block.sums16), vld1q_s16(block.sums16 + 8)));
  }
}

}  // namespace

const ActivationEncoders* neon_activation_encoders() {
  static constexpr ActivationEncoders encoders{encode32, encode256};
  return &encoders;
}

}  // namespace moetier

#else

namespace moetier {
const ActivationEncoders* neon_activation_encoders() {
  return nullptr;
}
}  // namespace moetier

#endif
