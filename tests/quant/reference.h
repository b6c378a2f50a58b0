// Decoding in float64, weight by weight, straight from the description of the formats: shares no code with src/quant.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/grids.h"
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

/// Two bits of weight i in planes of 32.
inline int plane(const std::byte* codes, int i) {
  return bits(codes + 32 * (i / 128) + i % 32, 2 * (i % 128 / 32), 2);
}
inline int u16(const std::byte* at) {
  return u8(at) + 256 * u8(at + 1);
}
inline int64_t u32(const std::byte* at) {
  return u16(at) + int64_t{65536} * u16(at + 2);
}
inline int half_byte(const std::byte* at, int i) {
  return bits(at + i / 2, 4 * (i % 2), 4);
}

inline ReferenceWeight q2_k(const std::byte* b, int i) {
  const int k = i / 16;
  return affine(f16(b + 80) * bits(b + k, 0, 4), plane(b + 16, i), -f16(b + 82) * bits(b + k, 4, 4));
}

inline ReferenceWeight q3_k(const std::byte* b, int i) {
  const int k = i / 16;
  const int scale = bits(b + 96 + k % 8, k < 8 ? 0 : 4, 4) + 16 * bits(b + 104 + k % 4, 2 * (k / 4), 2) - 32;
  return affine(f16(b + 108) * scale, plane(b + 32, i) + 4 * bits(b + i % 32, i / 32, 1) - 4, 0);
}

/// Weight j of an octet with seven stored signs: the eighth makes their number even.
inline int seven_sign(int64_t stored, int j) {
  int set = 0;
  for (int k = 0; k < 7; ++k) set += static_cast<int>(stored >> k & 1);
  return (j < 7 ? stored >> j & 1 : set % 2) != 0 ? -1 : 1;
}

/// Element of a grid's row (the grids have a test of their own).
template <typename Row, size_t kRows>
int element(const Row (&grid)[kRows], int row, int j) {
  return static_cast<int>(grid[row] >> (8 * j) & 0xff);
}

inline double iq2_xxs(const std::byte* b, int i) {
  const std::byte* group = b + 2 + 8 * (i / 32);
  const int64_t word = u32(group + 4);
  const int l = i % 32 / 8, j = i % 8;
  return f16(b) * (0.5 + static_cast<double>(word >> 28)) / 4 * element(grids().iq2_xxs, u8(group + l), j) *
         seven_sign(word >> (7 * l) & 127, j);
}
inline double iq2_xs(const std::byte* b, int i) {
  const int word = u16(b + 2 + 2 * (i / 8)), j = i % 8;
  return f16(b) * (0.5 + half_byte(b + 66, i / 16)) / 4 * element(grids().iq2_xs, word % 512, j) *
         seven_sign(word / 512, j);
}
inline double iq2_s(const std::byte* b, int i) {
  const int n = i / 8, j = i % 8, row = u8(b + 2 + n) + 256 * bits(b + 66 + n / 4, 2 * (n % 4), 2);
  return f16(b) * (0.5 + half_byte(b + 74, i / 16)) / 4 * element(grids().iq2_s, row, j) *
         (bits(b + 34 + n, j, 1) != 0 ? -1 : 1);
}
inline double iq3_xxs(const std::byte* b, int i) {
  const int64_t word = u32(b + 66 + 4 * (i / 32));
  return f16(b) * (0.5 + static_cast<double>(word >> 28)) / 2 * element(grids().iq3_xxs, u8(b + 2 + i / 4), i % 4) *
         seven_sign(word >> (7 * (i % 32 / 8)) & 127, i % 8);
}
inline double iq3_s(const std::byte* b, int i) {
  const int t = i / 4, row = u8(b + 2 + t) + 256 * bits(b + 66 + t / 8, t % 8, 1);
  return f16(b) * (1 + 2 * half_byte(b + 106, i / 32)) * element(grids().iq3_s, row, i % 4) *
         (bits(b + 74 + i / 8, i % 8, 1) != 0 ? -1 : 1);
}

/// Elements are kept as 8 (element + 1).
inline ReferenceWeight iq1(double scale, int row, int j, bool down) {
  return affine(scale, element(grids().iq1, row, j) / 8 - 1, scale * (down ? -0.125 : 0.125));
}
inline ReferenceWeight iq1_s(const std::byte* b, int i) {
  const int word = u16(b + 34 + 2 * (i / 32)), l = i % 32 / 8;
  return iq1(f16(b) * (2 * (word >> 12 & 7) + 1), u8(b + 2 + i / 8) + 256 * (word >> (3 * l) & 7), i % 8,
             word >= 0x8000);
}
inline ReferenceWeight iq1_m(const std::byte* b, int i) {
  std::byte d[2]{};
  for (int r = 0; r < 4; ++r) d[r / 2] |= static_cast<std::byte>(bits(b + 49 + 2 * r, 4, 4) << (4 * (r % 2)));
  const int k = i / 16, high = half_byte(b + 32, i / 8);
  const int scale = 2 * (u16(b + 48 + 2 * (k / 4)) >> (3 * (k % 4)) & 7) + 1;
  return iq1(f16(d) * scale, u8(b + i / 8) + 256 * (high & 7), i % 8, high > 7);
}

inline double iq4_xs(const std::byte* b, int i) {
  const int s = i / 32, scale = half_byte(b + 4, s) + 16 * (u16(b + 2) >> (2 * s) & 3) - 32;
  return f16(b) * scale * iq4(nibble(b + 8 + 16 * s, i % 32));
}

/// The digits of a byte / 256 in base 3, first after the point first.
inline int digit(const std::byte* at, int n) {
  int fraction = u8(at), whole = 0;
  for (int k = 0; k <= n; ++k) {
    whole = fraction * 3 / 256;
    fraction = fraction * 3 % 256;
  }
  return whole;
}
inline double tq1_0(const std::byte* b, int i) {
  const int value = i < 160   ? digit(b + i % 32, i / 32)
                    : i < 240 ? digit(b + 32 + i % 16, (i - 160) / 16)
                              : digit(b + 48 + i % 4, (i - 240) / 4);
  return f16(b + 52) * (value - 1);
}

inline double nvfp4(const std::byte* b, int i) {
  const int g = i / 16, j = i % 16, s = u8(b + g) % 128, exponent = s / 8;
  const double scale = s == 127 ? 0 : exponent == 0 ? std::ldexp(s, -9) : std::ldexp(1 + s % 8 / 8.0, exponent - 7);
  return scale * fp4(bits(b + 4 + 8 * g + j % 8, j < 8 ? 0 : 4, 4));
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
    case TensorType::q2_k:
      return q2_k(b, i);
    case TensorType::q3_k:
      return q3_k(b, i);
    case TensorType::iq1_s:
      return iq1_s(b, i);
    case TensorType::iq1_m:
      return iq1_m(b, i);
    case TensorType::tq2_0:
      return plain(f16(b + 64) * (plane(b, i) - 1));
    case TensorType::iq2_xxs:
      return plain(iq2_xxs(b, i));
    case TensorType::iq2_xs:
      return plain(iq2_xs(b, i));
    case TensorType::iq2_s:
      return plain(iq2_s(b, i));
    case TensorType::iq3_xxs:
      return plain(iq3_xxs(b, i));
    case TensorType::iq3_s:
      return plain(iq3_s(b, i));
    case TensorType::iq4_xs:
      return plain(iq4_xs(b, i));
    case TensorType::tq1_0:
      return plain(tq1_0(b, i));
    case TensorType::nvfp4:
      return plain(nvfp4(b, i));
    default:
      return {std::nan(""), 0};
  }
}

}  // namespace moetier::testing
