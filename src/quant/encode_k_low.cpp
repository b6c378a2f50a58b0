// Floats to super-blocks of Q2_K and Q3_K: sixteen sub-blocks of 16.
#include <algorithm>
#include <cmath>

#include "quant/encode.h"
#include "quant/encode_affine.h"

namespace moetier::encoders {
namespace {

/// Two bits of each code, in planes: weight i at bit 2p of qs[32h + l].
void pack_two_bits(const uint8_t* codes, uint8_t* qs) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      const int low = (c[l] & 3) | (c[l + 32] & 3) << 2, high = (c[l + 64] & 3) << 4 | (c[l + 96] & 3) << 6;
      qs[32 * half + l] = static_cast<uint8_t>(low | high);
    }
  }
}

// ---- x = scale * code + offset: Q2_K ----

struct AffineScales {
  float scales[16], mins[16];
};

/// Fits all sub-blocks; `codes` gets the codes of the fits. A weight counts by its magnitude.
AffineScales fit_sub_blocks(const float* x, uint8_t* codes) {
  AffineScales found;
  for (int first = 0; first < 16; first += kLanes) {
    const SubBlocks<16> sub(x + 16 * first);
    const AffineFit<16> fit = fit_affine<ErrorKind::absolute>(sub, Importance<16>(sub, all(0)), {3, -0.5f, 15});
    for (int lane = 0; lane < kLanes; ++lane) {
      found.scales[first + lane] = fit.scale[lane];
      found.mins[first + lane] = -fit.offset[lane];
      for (int i = 0; i < 16; ++i) codes[16 * (first + lane) + i] = static_cast<uint8_t>(fit.codes[i][lane]);
    }
  }
  return found;
}

/// Sixteen numbers >= 0 as multiples 0..15 of a fifteenth of the largest. Returns that step as f16.
uint16_t to_four_bits(const float* numbers, int* multiples) {
  const float largest = std::max(0.0f, *std::max_element(numbers, numbers + 16));
  const uint16_t step = f16_scale(largest / 15.0f);
  const float inverse = steps_per_unit(15.0f, largest);
  for (int k = 0; k < 16; ++k) {
    multiples[k] = static_cast<int>(round_even(std::clamp(inverse * numbers[k], 0.0f, 15.0f)));
  }
  return step;
}

// ---- x = scale * code, code -4..3: Q3_K ----

constexpr int kLevels = 4;
constexpr int kPasses = 5;

/// Sums over a sub-block of weight * x * code and weight * code * code, a weight counting by its square.
struct Sums {
  Floats cx = all(0), cc = all(0);
};

struct SymmetricFit {
  Floats scale;
  Floats codes[16];  ///< with 4 added; 0 in a sub-block that is zero
};

/// Gives each weight in turn the code that is best for the scale which the others want, where the whole gains by it.
/// False if none changed.
bool refine(const SubBlocks<16>& sub, Sums& sums, Floats* codes) {
  Mask changed = {0, 0, 0, 0};
  for (int i = 0; i < 16; ++i) {
    const Floats x = sub.x[i], weight = x * x, old = codes[i];
    Sums others{sums.cx - weight * x * old, sums.cc - weight * old * old};
    const Mask usable = others.cx > 0;
    const Floats code = round_clamp(x * others.cc / (usable ? others.cx : all(1)), -kLevels, kLevels - 1);
    const Sums with{others.cx + weight * x * code, others.cc + weight * code * code};
    const Mask better =
        usable & (code != old) & (with.cc > 0) & (with.cx * with.cx * sums.cc > sums.cx * sums.cx * with.cc);
    codes[i] = better ? code : old;
    sums.cx = better ? with.cx : sums.cx;
    sums.cc = better ? with.cc : sums.cc;
    changed |= better;
  }
  return any(changed);
}

SymmetricFit fit_symmetric(const SubBlocks<16>& sub) {
  const Peaks peaks = signed_peaks(sub);
  const Mask nothing = peaks.size < kNothing;
  const Floats inverse = static_cast<float>(-kLevels) / (nothing ? all(1) : peaks.peak);
  SymmetricFit fit;
  Sums sums;
  for (int i = 0; i < 16; ++i) {
    const Floats x = sub.x[i], weight = x * x;
    fit.codes[i] = round_clamp(inverse * x, -kLevels, kLevels - 1);
    sums.cx = sums.cx + weight * x * fit.codes[i];
    sums.cc = sums.cc + weight * fit.codes[i] * fit.codes[i];
  }
  for (int pass = 0; pass < kPasses && refine(sub, sums, fit.codes); ++pass) {
  }
  const Mask solvable = ~nothing & (sums.cc > 0);
  fit.scale = solvable ? sums.cx / (solvable ? sums.cc : all(1)) : all(0);
  for (Floats& code : fit.codes) code = nothing ? all(0) : code + static_cast<float>(kLevels);
  return fit;
}

/// The inverse of unpack_q3_scales(); `packed` must be zero.
void pack_q3_scales(const int* scales, uint8_t* packed) {
  for (int k = 0; k < 16; ++k) {
    packed[k % 8] = static_cast<uint8_t>(packed[k % 8] | (scales[k] & 15) << (k < 8 ? 0 : 4));
    packed[8 + k % 4] = static_cast<uint8_t>(packed[8 + k % 4] | (scales[k] >> 4) << (2 * (k / 4)));
  }
}

}  // namespace

void encode_block(const float* x, BlockQ2_K& out) {
  uint8_t codes[256];
  const AffineScales fits = fit_sub_blocks(x, codes);
  int scales[16], mins[16];
  out.d = to_four_bits(fits.scales, scales);
  out.dmin = to_four_bits(fits.mins, mins);
  const float d = f16_to_f32(out.d), dmin = f16_to_f32(out.dmin);
  for (int k = 0; k < 16; ++k) {
    out.scales[k] = static_cast<uint8_t>(scales[k] | mins[k] << 4);
    const float scale = d * static_cast<float>(scales[k]), min = dmin * static_cast<float>(mins[k]);
    if (scale == 0) continue;  // the fit's codes stay, though they decode to the same
    for (int i = 16 * k; i < 16 * k + 16; ++i) {
      codes[i] = static_cast<uint8_t>(round_even(std::clamp((x[i] + min) / scale, 0.0f, 3.0f)));
    }
  }
  pack_two_bits(codes, out.qs);
}

void encode_block(const float* x, BlockQ3_K& out) {
  f16_scale(signed_peak(x, kSuperBlock) / 256.0f);  // fails where the block's scale would, before sums can overflow
  float fits[16];
  uint8_t codes[256];
  for (int first = 0; first < 16; first += kLanes) {
    const SymmetricFit fit = fit_symmetric(SubBlocks<16>(x + 16 * first));
    for (int lane = 0; lane < kLanes; ++lane) {
      fits[first + lane] = fit.scale[lane];
      for (int i = 0; i < 16; ++i) codes[16 * (first + lane) + i] = static_cast<uint8_t>(fit.codes[i][lane]);
    }
  }
  out = BlockQ3_K{};
  const float peak = signed_peak(fits, 16);
  int scales[16] = {};
  if (peak != 0) {
    const float inverse = -32.0f / peak;
    out.d = f16_scale(1.0f / inverse);
    const float d = f16_to_f32(out.d);
    for (int k = 0; k < 16; ++k) {
      const float multiple = round_even(std::clamp(inverse * fits[k], -32.0f, 31.0f));
      scales[k] = static_cast<int>(multiple) + 32;
      const float scale = d * multiple;
      if (scale == 0) continue;
      for (int i = 16 * k; i < 16 * k + 16; ++i) {
        codes[i] = static_cast<uint8_t>(round_even(std::clamp(x[i] / scale, -4.0f, 3.0f)) + 4.0f);
      }
    }
  }
  pack_q3_scales(scales, out.scales);
  for (int i = 0; i < 256; ++i) {
    out.hmask[i % 32] = static_cast<uint8_t>(out.hmask[i % 32] | (codes[i] >> 2) << (i / 32));
  }
  pack_two_bits(codes, out.qs);
}

}  // namespace moetier::encoders
