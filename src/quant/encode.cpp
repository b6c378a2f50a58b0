// Floats to the plain types and the types of 32 weights; encode() itself.
#include <algorithm>
#include <cstring>

#include "quant/codec.h"
#include "quant/encode.h"

namespace moetier {
namespace encoders {
namespace {

/// Codes 0..15 of 32 weights as nibbles.
void pack_nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/// Bit 4 of 32 codes.
uint32_t pack_fifth_bits(const uint8_t* codes) {
  uint32_t bits = 0;
  for (int j = 0; j < 32; ++j) bits |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
  return bits;
}

/// Q4_0 and Q5_0: the signed peak becomes code 0, so `levels` codes reach from -levels/2 upwards. Returns the scale as
/// f16.
uint16_t encode_symmetric(const float* x, int levels, uint8_t* codes) {
  const int half = levels / 2;
  const float d = signed_peak(x, 32) / static_cast<float>(-half);
  const uint16_t stored = f16_scale(d);
  const float inverse = reciprocal_or_zero(d);
  const float offset = static_cast<float>(half) + 0.5f;
  for (int j = 0; j < 32; ++j) {
    codes[j] = static_cast<uint8_t>(std::min(levels - 1, static_cast<int>(x[j] * inverse + offset)));
  }
  return stored;
}

struct ScaleMin {
  uint16_t scale, min;  // f16
};

/// Q4_1 and Q5_1: the smallest weight becomes code 0, the largest `levels` - 1.
ScaleMin encode_affine(const float* x, int levels, uint8_t* codes) {
  const float min = *std::min_element(x, x + 32);  // the first of equals: zeros may differ in sign
  const float d = (*std::max_element(x, x + 32) - min) / static_cast<float>(levels - 1);
  const ScaleMin stored{f16_scale(d), f16_scale(min)};
  const float inverse = reciprocal_or_zero(d);
  for (int j = 0; j < 32; ++j) {
    codes[j] = static_cast<uint8_t>(std::min(levels - 1, static_cast<int>((x[j] - min) * inverse + 0.5f)));
  }
  return stored;
}

/// By bits, as integers, since those of finite magnitudes are in the same order and a maximum of integers vectorizes.
float largest_magnitude(const float* x) {
  int32_t largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::bit_cast<int32_t>(x[j]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

}  // namespace

void encode_block(const float* x, BlockQ4_0& out) {
  uint8_t codes[32];
  out.d = encode_symmetric(x, 16, codes);
  pack_nibbles(codes, out.qs);
}

void encode_block(const float* x, BlockQ5_0& out) {
  uint8_t codes[32];
  out.d = encode_symmetric(x, 32, codes);
  out.qh = pack_fifth_bits(codes);
  pack_nibbles(codes, out.qs);
}

void encode_block(const float* x, BlockQ4_1& out) {
  uint8_t codes[32];
  const ScaleMin fit = encode_affine(x, 16, codes);
  out.d = fit.scale;
  out.m = fit.min;
  pack_nibbles(codes, out.qs);
}

void encode_block(const float* x, BlockQ5_1& out) {
  uint8_t codes[32];
  const ScaleMin fit = encode_affine(x, 32, codes);
  out.d = fit.scale;
  out.m = fit.min;
  out.qh = pack_fifth_bits(codes);
  pack_nibbles(codes, out.qs);
}

void encode_block(const float* x, BlockQ8_0& out) {
  const float d = largest_magnitude(x) / 127.0f;
  out.d = f16_scale(d);
  const float inverse = reciprocal_or_zero(d);
  int codes[32];
  for (int j = 0; j < 32; ++j) {
    // Halves are rounded away from zero: to even first, then ties that went the other way are set right.
    const float t = std::fabs(x[j] * inverse), even = round_even(t);
    const float rounded = even + (t - even == 0.5f ? 1.0f : 0.0f);
    codes[j] = static_cast<int>(std::copysign(rounded, x[j]));
  }
  for (int j = 0; j < 32; ++j) out.qs[j] = static_cast<int8_t>(codes[j]);
}

void encode_block(const float* x, BlockMXFP4& out) {
  const float largest = largest_magnitude(x);
  // The top code stands for 6 = 1.5 * 2^2. log2 in double, rounded to float: what a good float log2 gives.
  int e = 0;
  if (largest > 0) e = static_cast<int>(std::floor(static_cast<float>(std::log2(static_cast<double>(largest))))) + 125;
  out.e = static_cast<uint8_t>(std::clamp(e, 0, 254));
  const float d = e8m0_half(out.e);
  // Half way between neighbours of 0 1 2 3 4 6 8 12; a tie goes to the lower code.
  const float bounds[7] = {0.5f * d, 1.5f * d, 2.5f * d, 3.5f * d, 5.0f * d, 7.0f * d, 10.0f * d};
  int steps[32] = {};
  for (const float bound : bounds) {
    for (int j = 0; j < 32; ++j) steps[j] += std::fabs(x[j]) > bound ? 1 : 0;
  }
  uint8_t codes[32];
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(steps[j] + (steps[j] > 0 && x[j] < 0 ? 8 : 0));
  pack_nibbles(codes, out.qs);
}

}  // namespace encoders

namespace {

template <typename Block>
void encode_blocks(const float* values, std::byte* out, int64_t n, int64_t block_length) {
  auto* blocks = reinterpret_cast<Block*>(out);
  for (int64_t b = 0; b < n / block_length; ++b) encoders::encode_block(values + b * block_length, blocks[b]);
}

template <typename Round>
void encode_u16(const float* values, std::byte* out, int64_t n, Round round) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t h = round(values[i]);
    std::memcpy(out + 2 * i, &h, sizeof(h));
  }
}

/// Fails if a value is infinite or NaN: no scale could be found for its block.
void check_finite(const float* values, int64_t n, std::string_view type) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t exponent = std::bit_cast<uint32_t>(values[i]) & 0x7f800000u;
    found |= exponent == 0x7f800000u ? 1u : 0u;
  }
  if (found == 0) return;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) fail("cannot encode to {}: value {} of {} is {}", type, i, n, values[i]);
  }
}

}  // namespace

bool can_encode(TensorType type) {
  switch (type) {
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q8_0:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
    case TensorType::mxfp4:
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::iq4_nl:
    case TensorType::iq4_xs:
    case TensorType::tq1_0:
    case TensorType::tq2_0:
    case TensorType::nvfp4:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq2_s:
      return true;
    default:
      return false;
  }
}

void encode(TensorType type, const float* values, std::byte* blocks, int64_t n) {
  const TypeInfo& info = type_info(type);
  if (n < 0 || n % info.block_length != 0) {
    fail("cannot encode {} weights as {}: their number must be a multiple of {}", n, info.name, info.block_length);
  }
  if (n == 0) return;
  if (info.block_length > 1) check_finite(values, n, info.name);
  switch (type) {
    case TensorType::f32:
      std::memcpy(blocks, values, static_cast<size_t>(n) * sizeof(float));
      return;
    case TensorType::f16:
      return encode_u16(values, blocks, n, f32_to_f16);
    case TensorType::bf16:
      return encode_u16(values, blocks, n, f32_to_bf16);
    case TensorType::q4_0:
      return encode_blocks<BlockQ4_0>(values, blocks, n, kBlock32);
    case TensorType::q4_1:
      return encode_blocks<BlockQ4_1>(values, blocks, n, kBlock32);
    case TensorType::q5_0:
      return encode_blocks<BlockQ5_0>(values, blocks, n, kBlock32);
    case TensorType::q5_1:
      return encode_blocks<BlockQ5_1>(values, blocks, n, kBlock32);
    case TensorType::q8_0:
      return encode_blocks<BlockQ8_0>(values, blocks, n, kBlock32);
    case TensorType::mxfp4:
      return encode_blocks<BlockMXFP4>(values, blocks, n, kBlock32);
    case TensorType::q4_k:
      return encode_blocks<BlockQ4_K>(values, blocks, n, kSuperBlock);
    case TensorType::q5_k:
      return encode_blocks<BlockQ5_K>(values, blocks, n, kSuperBlock);
    case TensorType::q6_k:
      return encode_blocks<BlockQ6_K>(values, blocks, n, kSuperBlock);
    case TensorType::q2_k:
      return encode_blocks<BlockQ2_K>(values, blocks, n, kSuperBlock);
    case TensorType::q3_k:
      return encode_blocks<BlockQ3_K>(values, blocks, n, kSuperBlock);
    case TensorType::iq4_nl:
      return encode_blocks<BlockIQ4_NL>(values, blocks, n, kBlock32);
    case TensorType::iq4_xs:
      return encode_blocks<BlockIQ4_XS>(values, blocks, n, kSuperBlock);
    case TensorType::tq1_0:
      return encode_blocks<BlockTQ1_0>(values, blocks, n, kSuperBlock);
    case TensorType::tq2_0:
      return encode_blocks<BlockTQ2_0>(values, blocks, n, kSuperBlock);
    case TensorType::nvfp4:
      return encode_blocks<BlockNVFP4>(values, blocks, n, kBlock64);
    case TensorType::iq3_xxs:
      return encode_blocks<BlockIQ3_XXS>(values, blocks, n, kSuperBlock);
    case TensorType::iq3_s:
      return encode_blocks<BlockIQ3_S>(values, blocks, n, kSuperBlock);
    case TensorType::iq2_s:
      return encode_blocks<BlockIQ2_S>(values, blocks, n, kSuperBlock);
    default:
      fail("weights cannot be encoded as {} by this program", info.name);
  }
}

}  // namespace moetier
