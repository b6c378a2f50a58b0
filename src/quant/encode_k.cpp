// Floats to super-blocks of Q4_K, Q5_K and Q6_K.
#include <algorithm>
#include <cmath>

#include "quant/encode.h"
#include "quant/encode_affine.h"

namespace moetier::encoders {
namespace {

// ---- x = scale * code + offset, offset <= 0: Q4_K and Q5_K ----

/// A weight counts by the root mean square of its sub-block plus its own magnitude.
Importance<32> weigh(const SubBlocks<32>& sub) {
  Floats squares = all(0);
  for (const Floats x : sub.x) squares = squares + x * x;
  return {sub, square_root(squares / 32.0f)};
}

/// What Q4_K and Q5_K have in common.
struct AffineBlock {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t codes[256];
};

/// The final codes, made with the scales as stored.
void final_affine_codes(const float* x, float top, const ScalesMins& sub, AffineBlock& block) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int k = 0; k < 8; ++k) {
    const float scale = d * static_cast<float>(sub.scales[k]), min = dmin * static_cast<float>(sub.mins[k]);
    if (scale == 0) continue;  // the fit's codes stay, though they decode to the same
    for (int i = 32 * k; i < 32 * k + 32; ++i) {
      const float t = (x[i] + min) / scale;
      block.codes[i] = static_cast<uint8_t>(round_even(std::clamp(t, 0.0f, top)));
    }
  }
}

AffineBlock encode_affine(const float* x, const AffineSearch& search) {
  AffineBlock block;
  float scales[8], mins[8];
  for (int first = 0; first < 8; first += kLanes) {
    const SubBlocks<32> sub(x + 32 * first);
    const AffineFit<32> fit = fit_affine<ErrorKind::squared>(sub, weigh(sub), search);
    for (int lane = 0; lane < kLanes; ++lane) {
      scales[first + lane] = fit.scale[lane];
      mins[first + lane] = -fit.offset[lane];
      for (int i = 0; i < 32; ++i) block.codes[32 * (first + lane) + i] = static_cast<uint8_t>(fit.codes[i][lane]);
    }
  }
  const float max_scale = std::max(0.0f, *std::max_element(scales, scales + 8));
  const float max_min = std::max(0.0f, *std::max_element(mins, mins + 8));
  block.d = f16_scale(max_scale / 63.0f);
  block.dmin = f16_scale(max_min / 63.0f);
  const float inverse_scale = steps_per_unit(63.0f, max_scale);
  const float inverse_min = steps_per_unit(63.0f, max_min);
  ScalesMins sub;
  for (int k = 0; k < 8; ++k) {
    sub.scales[k] = static_cast<uint8_t>(round_even(std::clamp(inverse_scale * scales[k], 0.0f, 63.0f)));
    sub.mins[k] = static_cast<uint8_t>(round_even(std::clamp(inverse_min * mins[k], 0.0f, 63.0f)));
  }
  pack_scales_mins(sub, block.scales);
  final_affine_codes(x, search.top, sub, block);
  return block;
}

/// Low four bits of all codes, as both types pack them.
void pack_low_bits(const uint8_t* codes, uint8_t* qs) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) {
      qs[32 * pair + l] = static_cast<uint8_t>((codes[64 * pair + l] & 15) | (codes[64 * pair + 32 + l] & 15) << 4);
    }
  }
}

// ---- x = scale * code, code -32..31: Q6_K ----

constexpr int kSymmetricLevels = 32;

struct SymmetricFit {
  Floats scale;
  Floats codes[16];  ///< with 32 added; 0 in a sub-block that is zero
};

struct SymmetricTrial {
  Floats codes[16];
  Floats sum_cx, sum_cc;  ///< weighted by x * x
};

SymmetricTrial try_symmetric(const SubBlocks<16>& sub, Floats inverse) {
  SymmetricTrial trial;
  trial.sum_cx = trial.sum_cc = all(0);
  for (int i = 0; i < 16; ++i) {
    const Floats x = sub.x[i], weight = x * x;
    const Floats code = round_clamp(inverse * x, -kSymmetricLevels, kSymmetricLevels - 1);
    trial.codes[i] = code + static_cast<float>(kSymmetricLevels);
    trial.sum_cx = trial.sum_cx + weight * x * code;
    trial.sum_cc = trial.sum_cc + weight * code * code;
  }
  return trial;
}

SymmetricFit fit_symmetric(const SubBlocks<16>& sub) {
  const Peaks peaks = signed_peaks(sub);
  const Mask nothing = peaks.size < kNothing;
  const Floats peak = nothing ? all(1) : peaks.peak;
  SymmetricTrial trial = try_symmetric(sub, static_cast<float>(-kSymmetricLevels) / peak);
  SymmetricFit fit;
  fit.scale = trial.sum_cc != 0 ? trial.sum_cx / (trial.sum_cc != 0 ? trial.sum_cc : all(1)) : all(0);
  for (int i = 0; i < 16; ++i) fit.codes[i] = trial.codes[i];
  Floats best = fit.scale * trial.sum_cx;
  for (int t = -9; t <= 9; ++t) {
    if (t == 0) continue;
    const float levels = static_cast<float>(kSymmetricLevels) + 0.1f * static_cast<float>(t);
    trial = try_symmetric(sub, -levels / peak);
    const Mask better = (trial.sum_cc > 0) & (trial.sum_cx * trial.sum_cx > best * trial.sum_cc);
    const Floats scale = trial.sum_cx / (better ? trial.sum_cc : all(1));
    fit.scale = better ? scale : fit.scale;
    best = better ? scale * trial.sum_cx : best;
    for (int i = 0; i < 16; ++i) fit.codes[i] = better ? trial.codes[i] : fit.codes[i];
  }
  fit.scale = nothing ? all(0) : fit.scale;
  for (Floats& codes : fit.codes) codes = nothing ? all(0) : codes;
  return fit;
}

/// Puts codes 0..63 into their planes (see BlockQ6_K).
void pack_planes(const uint8_t* codes, BlockQ6_K& out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      out.ql[64 * half + l] = static_cast<uint8_t>((c[l] & 15) | (c[l + 64] & 15) << 4);
      out.ql[64 * half + 32 + l] = static_cast<uint8_t>((c[l + 32] & 15) | (c[l + 96] & 15) << 4);
      out.qh[32 * half + l] =
          static_cast<uint8_t>(c[l] >> 4 | c[l + 32] >> 4 << 2 | c[l + 64] >> 4 << 4 | c[l + 96] >> 4 << 6);
    }
  }
}

}  // namespace

void encode_block(const float* x, BlockQ4_K& out) {
  const AffineBlock block = encode_affine(x, {15, -1.0f, 20});
  out.d = block.d;
  out.dmin = block.dmin;
  std::copy(block.scales, block.scales + 12, out.scales);
  pack_low_bits(block.codes, out.qs);
}

void encode_block(const float* x, BlockQ5_K& out) {
  const AffineBlock block = encode_affine(x, {31, -0.5f, 15});
  out.d = block.d;
  out.dmin = block.dmin;
  std::copy(block.scales, block.scales + 12, out.scales);
  pack_low_bits(block.codes, out.qs);
  for (int l = 0; l < 32; ++l) {
    int bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (block.codes[32 * k + l] >> 4) << k;
    out.qh[l] = static_cast<uint8_t>(bits);
  }
}

void encode_block(const float* x, BlockQ6_K& out) {
  f16_scale(signed_peak(x, kSuperBlock) / 8192.0f);  // fails where the block's scale would, before sums can overflow
  float scales[16];
  uint8_t codes[256];
  for (int first = 0; first < 16; first += kLanes) {
    const SymmetricFit fit = fit_symmetric(SubBlocks<16>(x + 16 * first));
    for (int lane = 0; lane < kLanes; ++lane) {
      scales[first + lane] = fit.scale[lane];
      for (int i = 0; i < 16; ++i) codes[16 * (first + lane) + i] = static_cast<uint8_t>(fit.codes[i][lane]);
    }
  }
  const float peak = signed_peak(scales, 16);
  if (std::fabs(peak) < kNothing) {
    out = BlockQ6_K{};
    return;
  }
  const float inverse = -128.0f / peak;
  out.d = f16_scale(1.0f / inverse);
  const float d = f16_to_f32(out.d);
  for (int k = 0; k < 16; ++k) {
    out.scales[k] = static_cast<int8_t>(round_even(std::clamp(inverse * scales[k], -128.0f, 127.0f)));
    const float scale = d * static_cast<float>(out.scales[k]);
    if (scale == 0) continue;  // the fit's codes stay, though they decode to the same
    for (int i = 16 * k; i < 16 * k + 16; ++i) {
      const float code = round_even(std::clamp(x[i] / scale, -32.0f, 31.0f));
      codes[i] = static_cast<uint8_t>(code + 32.0f);
    }
  }
  pack_planes(codes, out);
}

}  // namespace moetier::encoders
