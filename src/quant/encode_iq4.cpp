// Floats to IQ4_NL and IQ4_XS: x = scale * one of sixteen fixed values.
#include <algorithm>
#include <array>
#include <cmath>

#include "quant/encode.h"
#include "quant/encode_lanes.h"

namespace moetier::encoders {
namespace {

/// Half way between neighbours of kIq4Values, exactly; a tie goes to the higher value.
constexpr std::array<float, 15> kMiddles = [] {
  std::array<float, 15> middles{};
  for (size_t i = 0; i < middles.size(); ++i) {
    middles[i] = 0.5f * static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
  }
  return middles;
}();

int nearest_code(float x) {
  int code = 0;
  for (const float middle : kMiddles) code += x >= middle ? 1 : 0;
  return code;
}

/// The value of kIq4Values that is nearest, in each lane.
Floats nearest_value(Floats x) {
  Floats value = all(kIq4Values[0]);
  for (size_t i = 0; i < kMiddles.size(); ++i) {
    const auto step = static_cast<float>(kIq4Values[i + 1] - kIq4Values[i]);
    value = value + (x >= kMiddles[i] ? all(step) : all(0));
  }
  return value;
}

/// Sums over a block of weight * x * value and weight * value * value, a weight counting by its square.
struct Sums {
  Floats vx = all(0), vv = all(0);
};

Sums sum_up(const float* x, Floats inverse) {
  Sums sums;
  for (int j = 0; j < 32; ++j) {
    const Floats value = nearest_value(inverse * x[j]), weighted = x[j] * x[j] * value;
    sums.vx = sums.vx + weighted * x[j];
    sums.vv = sums.vv + weighted * value;
  }
  return sums;
}

/// The best scale of a block of 32, 0 if there is nothing in it. Candidates make the peak -127 (once for each sign of
/// it, by the scale's sign) and then from -134 to -120; they fill the lanes, and are judged in their order.
float fit_scale(const float* x) {
  const float peak = signed_peak(x, 32);
  if (std::fabs(peak) < kNothing) return 0;
  constexpr int kTrials = 7;
  constexpr int kCandidates = 2 * kTrials + 2;
  float inverse[kCandidates];
  inverse[0] = 1.0f / (-peak / static_cast<float>(kIq4Values[0]));
  for (int t = -kTrials; t <= kTrials; ++t) {
    inverse[kTrials + 1 + t] = static_cast<float>(t + kIq4Values[0]) / peak;
  }
  float scale = 0, best = 0;
  for (int first = 0; first < kCandidates; first += kLanes) {
    const Sums sums = sum_up(x, Floats{inverse[first], inverse[first + 1], inverse[first + 2], inverse[first + 3]});
    for (int lane = 0; lane < kLanes; ++lane) {
      const float vx = sums.vx[lane], vv = sums.vv[lane];
      if (first + lane > 0 && !(vv > 0 && vx * vx > best * vv)) continue;
      scale = vx / vv;
      best = scale * vx;
    }
  }
  return scale;
}

/// Sixteen bytes of nibbles.
void encode_codes(const float* x, float inverse, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>(nearest_code(inverse * x[j]) | nearest_code(inverse * x[j + 16]) << 4);
  }
}

}  // namespace

void encode_block(const float* x, BlockIQ4_NL& out) {
  f16_scale(signed_peak(x, kBlock32) / 256.0f);  // fails where the block's scale would, before sums can overflow
  const float scale = fit_scale(x);
  out.d = f16_scale(scale);
  encode_codes(x, reciprocal_or_zero(scale), out.qs);
}

void encode_block(const float* x, BlockIQ4_XS& out) {
  f16_scale(signed_peak(x, kSuperBlock) / 8192.0f);
  float scales[8];
  for (int s = 0; s < 8; ++s) scales[s] = fit_scale(x + 32 * s);
  out = BlockIQ4_XS{};
  const float d = -signed_peak(scales, 8) / 32.0f, inverse = reciprocal_or_zero(d);
  out.d = f16_scale(d);
  for (int s = 0; s < 8; ++s) {
    // Codes are made with the float scale, not with the f16 that is stored.
    const float multiple = round_even(std::clamp(inverse * scales[s], -32.0f, 31.0f));
    encode_codes(x + 32 * s, reciprocal_or_zero(d * multiple), out.qs + 16 * s);
    const int stored = static_cast<int>(multiple) + 32;
    out.scales_low[s / 2] = static_cast<uint8_t>(out.scales_low[s / 2] | (stored & 15) << (s % 2 * 4));
    out.scales_high = static_cast<uint16_t>(out.scales_high | (stored >> 4) << (2 * s));
  }
}

}  // namespace moetier::encoders
