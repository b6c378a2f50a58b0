// The functions of docs/numbers.md as fixed sequences of float32 operations, one value at a time. math_avx2.h has the
// same sequences eight values at a time, with the same bits.
//
// Everything here is always inlined: units compiled for different instruction sets must never share a copy.
#pragma once

#include <bit>
#include <cstdint>

namespace moetier::num {

#define MOETIER_INLINE [[gnu::always_inline]] inline

/// Magnitudes below this are +0 wherever the accumulation rule says `flush`.
inline constexpr float kFlush = 0x1p-100f;
/// Adding and subtracting this rounds |x| < 2^22 to the nearest integer, ties to even.
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23

inline constexpr float kExpLimit = 87.0f;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
/// e^r = 1 + r + r^2 * (c2 + c3 r + ... + c6 r^4) on |r| <= 0.347 with a relative error of 3.1e-9 before rounding
/// (own minimax fit by Remez exchange, constant and linear term held at 1).
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.555490p-3f;
inline constexpr float kExpC4 = 0x1.5558f6p-5f;
inline constexpr float kExpC5 = 0x1.123a8ep-7f;
inline constexpr float kExpC6 = 0x1.6a2318p-10f;

inline constexpr uint32_t kRecipGuess = 0x7EF311C3u;

inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluScale = 2.0f * 0.79788456f;

inline constexpr float kOaiAlpha = 1.702f;
inline constexpr float kOaiLimit = 7.0f;

/// a > b ? a : b, so a NaN in either gives b.
MOETIER_INLINE float max(float a, float b) {
  return a > b ? a : b;
}
/// a < b ? a : b, so a NaN in either gives b.
MOETIER_INLINE float min(float a, float b) {
  return a < b ? a : b;
}

/// To 11 significant bits, nearest even: the grid of half floats, without their range.
MOETIER_INLINE float round_scale(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

/// +0 where |x| < 2^-100, else x (a NaN stays).
MOETIER_INLINE float flush(float x) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  return magnitude < kFlush ? 0.0f : x;
}

/// 1/x for 2^-100 <= x < 2^126, within 2 units in the last place; elsewhere some value.
MOETIER_INLINE float recip(float x) {
  float y = std::bit_cast<float>(kRecipGuess - std::bit_cast<uint32_t>(x));
  for (int i = 0; i < 4; ++i) y = y * (2.0f - x * y);
  return y;
}

/// e^x with x clamped to [-87, 87]; a NaN counts as -87. exp(0) is exactly 1.
MOETIER_INLINE float exp(float x) {
  x = min(max(x, -kExpLimit), kExpLimit);
  const float shifted = x * kLog2E + kRound;
  const float k = shifted - kRound;
  // The integer k stands in the low mantissa bits of `shifted`.
  const uint32_t integer = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const float r = (x - k * kLn2High) - k * kLn2Low;
  float p = kExpC6;
  p = p * r + kExpC5;
  p = p * r + kExpC4;
  p = p * r + kExpC3;
  p = p * r + kExpC2;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((integer + 127u) << 23);
}

MOETIER_INLINE float sigmoid(float x) {
  return recip(1.0f + exp(-x));
}
MOETIER_INLINE float silu(float x) {
  return x * sigmoid(x);
}
/// max(0, x); a NaN stays.
MOETIER_INLINE float relu(float x) {
  return max(0.0f, x);
}
/// The tanh form.
MOETIER_INLINE float gelu(float x) {
  const float inner = x + kGeluCubic * ((x * x) * x);
  return x * sigmoid(kGeluScale * inner);
}

/// limit * tanh(x / limit).
MOETIER_INLINE float soft_cap(float limit, float inverse, float x) {
  return limit * (2.0f * sigmoid(2.0f * (x * inverse)) - 1.0f);
}

/// gpt-oss's gated activation, without the factor of `up`: of a gate already limited to 7.
MOETIER_INLINE float swish_1702(float g) {
  return g * sigmoid(kOaiAlpha * g);
}
/// Limits from above, and from both sides; a NaN stays.
MOETIER_INLINE float at_most(float limit, float x) {
  return min(limit, x);
}
MOETIER_INLINE float within(float limit, float x) {
  return max(-limit, min(limit, x));
}

/// For s = 8, 4, 2, 1: p[i] = p[i] + p[i + s] for i < s; the sum is p[0].
MOETIER_INLINE float tree16(float* p) {
  for (int s = 8; s >= 1; s /= 2) {
    for (int i = 0; i < s; ++i) p[i] = p[i] + p[i + s];
  }
  return p[0];
}
/// The same tree with max(p[i], p[i + s]).
MOETIER_INLINE float max_tree16(float* p) {
  for (int s = 8; s >= 1; s /= 2) {
    for (int i = 0; i < s; ++i) p[i] = max(p[i], p[i + s]);
  }
  return p[0];
}

}  // namespace moetier::num
