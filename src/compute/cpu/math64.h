// exp, log, sine and cosine in float64 as fixed sequences of operations, for the rotary tables: libm's last bits differ
// from machine to machine, these do not. Series and range reduction in parts (after Cody and Waite); 1e-15 or so for
// the arguments that tables meet.
#pragma once

#include <bit>
#include <cstdint>

#include "compute/cpu/math.h"

namespace moetier::num {

/// Adding and subtracting this rounds |x| < 2^51 to the nearest integer, ties to even.
inline constexpr double kRound64 = 6755399441055744.0;  // 1.5 * 2^52

/// ln 2 in two parts, the first of 32 bits.
inline constexpr double kLn2High64 = 0x1.62e42feep-1, kLn2Low64 = 0x1.a39ef35793c76p-33;

/// e^x with x clamped to [-700, 700]; a NaN counts as -700.
inline double exp64(double x) {
  constexpr double kOneOverLn2 = 1.4426950408889634;
  x = x > -700.0 ? x : -700.0;
  x = x < 700.0 ? x : 700.0;
  const double shifted = x * kOneOverLn2 + kRound64;
  const double k = shifted - kRound64;
  const uint64_t integer = std::bit_cast<uint64_t>(shifted) - std::bit_cast<uint64_t>(kRound64);
  const double r = (x - k * kLn2High64) - k * kLn2Low64;
  double p = 1.0;
  for (int i = 14; i >= 1; --i) p = p * (r * (1.0 / i)) + 1.0;  // Taylor, |r| <= 0.347
  return p * std::bit_cast<double>((integer + 1023u) << 52);
}

/// The natural logarithm of a normal x > 0; elsewhere some value.
inline double log64(double x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t offset = bits - 0x3fe6a09e667f3bcdu;  // bits of sqrt(1/2)
  const int64_t e = static_cast<int64_t>(offset) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  // log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.1716.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 0.0;
  for (int i = 25; i >= 3; i -= 2) series = (series + 1.0 / i) * z;
  const double log_m = 2.0 * s + (2.0 * s) * series;
  const double exponent = static_cast<double>(e);
  return exponent * kLn2High64 + (exponent * kLn2Low64 + log_m);
}

struct SineCosine {
  double sine, cosine;
};

/// Absolute error below 1e-15 for |x| < 2^31; beyond, and for a NaN, some value.
inline SineCosine sine_cosine64(double x) {
  // pi/2 in parts of 22 bits: k times a part is exact for |k| < 2^31, and so is the first difference.
  constexpr double kPart1 = 0x1.921fbp+0, kPart2 = 0x1.5110bp-22, kPart3 = 0x1.184698p-44, kPart4 = 0x1.3198ap-69;
  constexpr double kTwoOverPi = 0.6366197723675814;
  const double shifted = x * kTwoOverPi + kRound64;
  const double k = shifted - kRound64;
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) & 3u;
  const double r = (((x - k * kPart1) - k * kPart2) - k * kPart3) - k * kPart4;
  // Taylor on |r| <= pi/4.
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int i = 18; i >= 2; i -= 2) s = 1.0 - s * (z * (1.0 / (i * (i + 1))));
  for (int i = 19; i >= 1; i -= 2) c = 1.0 - c * (z * (1.0 / (i * (i + 1))));
  s = s * r;
  switch (quadrant) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

/// x where x > 20, else ln(1 + e^x), from the float32 exponential, rounded once.
inline float softplus(float x) {
  return x > 20.0f ? x : static_cast<float>(log64(1.0 + static_cast<double>(exp(x))));
}

}  // namespace moetier::num
