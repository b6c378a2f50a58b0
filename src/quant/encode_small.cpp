// Floats to the ternary types, TQ1_0 and TQ2_0, and to NVFP4.
#include <algorithm>
#include <cmath>

#include "quant/encode.h"

namespace moetier::encoders {
namespace {

float largest_magnitude(const float* x, int n) {
  return std::fabs(signed_peak(x, n));
}

/// The digits 0, 1, 2 that stand for -1, 0, 1 times the largest magnitude; halves go away from zero. Returns that
/// magnitude, the scale, as f16.
uint16_t encode_digits(const float* x, uint8_t* digits) {
  const float d = largest_magnitude(x, kSuperBlock);
  const uint16_t stored = f16_scale(d);
  const float inverse = reciprocal_or_zero(d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const float t = x[i] * inverse;
    digits[i] = static_cast<uint8_t>(1 + (t >= 0.5f ? 1 : 0) - (t <= -0.5f ? 1 : 0));
  }
  return stored;
}

/// `count` digits of base 3, `stride` apart, as a fixed-point fraction of five digits: see trit().
uint8_t pack_digits(const uint8_t* digits, int count, int stride) {
  int number = 0;
  for (int n = 0; n < 5; ++n) number = 3 * number + (n < count ? digits[n * stride] : 0);
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

/// The unsigned E4M3 byte for a scale: halves away from zero; from 248 on it is the largest, 448. That is too large
/// below 432, but what the stock quantizer writes.
uint8_t to_ue4m3(float x) {
  if (!(x > 0)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23) - 120;
  if (exponent <= 0) return static_cast<uint8_t>(std::min(7, static_cast<int>(x * 512.0f + 0.5f)));
  const int code = (exponent << 3 | static_cast<int>(bits >> 20 & 7)) + static_cast<int>(bits >> 19 & 1);
  return static_cast<uint8_t>(code < 15 << 3 ? code : 0x7e);
}

/// The code of the nearest of 0 1 2 3 4 6 8 12 times d, with a sign; a tie goes to the lower one. 0 has no sign.
int nearest_fp4(float x, float d) {
  constexpr float kMiddles[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  int code = 0;
  for (const float middle : kMiddles) code += std::fabs(x) > middle * d ? 1 : 0;
  return code > 0 && x < 0 ? code + 8 : code;
}

}  // namespace

void encode_block(const float* x, BlockTQ1_0& out) {
  uint8_t digits[kSuperBlock];
  out.d = encode_digits(x, digits);
  for (int m = 0; m < 32; ++m) out.qs[m] = pack_digits(digits + m, 5, 32);
  for (int m = 0; m < 16; ++m) out.qs[32 + m] = pack_digits(digits + 160 + m, 5, 16);
  for (int m = 0; m < 4; ++m) out.qh[m] = pack_digits(digits + 240 + m, 4, 4);
}

void encode_block(const float* x, BlockTQ2_0& out) {
  uint8_t digits[kSuperBlock];
  out.d = encode_digits(x, digits);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = digits + 128 * half;
    for (int l = 0; l < 32; ++l) {
      out.qs[32 * half + l] = static_cast<uint8_t>(c[l] | c[l + 32] << 2 | c[l + 64] << 4 | c[l + 96] << 6);
    }
  }
}

void encode_block(const float* x, BlockNVFP4& out) {
  for (int g = 0; g < 4; ++g) {
    const float* group = x + 16 * g;
    out.scales[g] = to_ue4m3(largest_magnitude(group, 16) / 6.0f);
    const float d = ue4m3_half(out.scales[g]);
    for (int j = 0; j < 8; ++j) {
      const int low = d > 0 ? nearest_fp4(group[j], d) : 0, high = d > 0 ? nearest_fp4(group[j + 8], d) : 0;
      out.qs[8 * g + j] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

}  // namespace moetier::encoders
