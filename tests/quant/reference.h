// Decoding in float64, weight by weight, straight from the description of the formats: shares no code with src/quant.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/tensor_type.h"

namespace moetier::testing {

struct ReferenceWeight {
  double value;
  double terms;  ///< sum of the magnitudes of the terms that `value` is made of: what rounding errors are relative to
};

namespace reference {

inline int u8(const std::byte* at) {
  return std::to_integer<int>(*at);
}
inline int i8(const std::byte* at) {
  return u8(at) < 128 ? u8(at) : u8(at) - 256;
}
inline int bits(const std::byte* at, int bit, int count) {
  return u8(at) >> bit & ((1 << count) - 1);
}

inline double f16(const std::byte* at) {
  const int h = u8(at) + 256 * u8(at + 1), exponent = h >> 10 & 31, mantissa = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

/// A float of 8 exponent bits whose fields are given.
inline double binary(int sign, int exponent, double fraction) {
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -126) : std::ldexp(1.0 + fraction, exponent - 127);
  return sign ? -magnitude : magnitude;
}

inline double bf16(const std::byte* at) {
  const int h = u8(at) + 256 * u8(at + 1);
  return binary(h >> 15, h >> 7 & 255, (h & 127) / 128.0);
}

inline double f32(const std::byte* at) {
  const int high = u8(at + 2) + 256 * u8(at + 3);
  const double fraction = (high & 127) / 128.0 + u8(at + 1) / 32768.0 + u8(at) / 8388608.0;
  return binary(high >> 15, high >> 7 & 255, fraction);
}

/// Weight i's nibble in the 32-weight types: byte i mod 16, low half first.
inline int nibble(const std::byte* codes, int i) {
  return bits(codes + i % 16, i < 16 ? 0 : 4, 4);
}
inline int fifth(const std::byte* high, int i) {
  return bits(high + i / 8, i % 8, 1) * 16;
}

inline ReferenceWeight affine(double scale, int q, double min) {
  return {scale * q + min, std::fabs(scale * q) + std::fabs(min)};
}

/// 6-bit scale (which = 0) or min (which = 1) of sub-block k in the 12 bytes of Q4_K and Q5_K.
inline int six_bits(const std::byte* packed, int k, int which) {
  if (k < 4) return bits(packed + k + 4 * which, 0, 6);
  return bits(packed + k + 4, 4 * which, 4) + 16 * bits(packed + k - 4 + 4 * which, 6, 2);
}

inline ReferenceWeight q45_k(const std::byte* b, int i, bool five) {
  const int k = i / 32, l = i % 32;
  const std::byte* codes = b + (five ? 48 : 16);
  int q = bits(codes + 32 * (k / 2) + l, 4 * (k % 2), 4);
  if (five) q += 16 * bits(b + 16 + l, k, 1);
  return affine(f16(b) * six_bits(b + 4, k, 0), q, -f16(b + 2) * six_bits(b + 4, k, 1));
}

inline ReferenceWeight q6_k(const std::byte* b, int i) {
  const int h = i / 128, p = i % 128 / 32, l = i % 32;
  const int low = bits(b + 64 * h + 32 * (p % 2) + l, p < 2 ? 0 : 4, 4);
  const int high = bits(b + 128 + 32 * h + l, 2 * p, 2);
  return affine(f16(b + 208) * i8(b + 192 + i / 16), low + 16 * high - 32, 0);
}

inline double fp4(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

inline double iq4(int code) {
  static const double values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return values[code];
}

}  // namespace reference

/// Weight i of the block at `b`.
inline ReferenceWeight reference_weight(TensorType type, const std::byte* b, int i) {
  using namespace reference;
  const auto plain = [](double x) { return ReferenceWeight{x, std::fabs(x)}; };
  switch (type) {
    case TensorType::f32:
      return plain(f32(b));
    case TensorType::f16:
      return plain(f16(b));
    case TensorType::bf16:
      return plain(bf16(b));
    case TensorType::q4_0:
      return affine(f16(b), nibble(b + 2, i) - 8, 0);
    case TensorType::q4_1:
      return affine(f16(b), nibble(b + 4, i), f16(b + 2));
    case TensorType::q5_0:
      return affine(f16(b), nibble(b + 6, i) + fifth(b + 2, i) - 16, 0);
    case TensorType::q5_1:
      return affine(f16(b), nibble(b + 8, i) + fifth(b + 4, i), f16(b + 2));
    case TensorType::q8_0:
      return affine(f16(b), i8(b + 2 + i), 0);
    case TensorType::iq4_nl:
      return plain(f16(b) * iq4(nibble(b + 2, i)));
    case TensorType::mxfp4:
      return plain(std::ldexp(fp4(nibble(b + 1, i)), u8(b) - 127));
    case TensorType::q4_k:
      return q45_k(b, i, false);
    case TensorType::q5_k:
      return q45_k(b, i, true);
    case TensorType::q6_k:
      return q6_k(b, i);
    default:
      return {std::nan(""), 0};
  }
}

}  // namespace moetier::testing
