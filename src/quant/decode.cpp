// Blocks to floats. Each formula is rounded step by step as it stands; the tests compare with golden floats bit by bit.
#include <cstring>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/unpack.h"

namespace moetier {
namespace {

/// f16 to float32 without branches, so that the loop vectorizes; the same bits as f16_to_f32().
float widen_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(h & 0x7fffu) << 13;
  // The exponent's bias differs by 112; a product with a power of two also sets subnormals right.
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1p112f);
  return std::bit_cast<float>(sign | (shifted >= 0x0f800000u ? shifted | 0x7f800000u : finite));
}

void decode_f32(const std::byte* in, float* out, int64_t n) {
  std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
}

uint16_t load_u16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void decode_f16(const std::byte* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = widen_f16(load_u16(in + 2 * i));
}

void decode_bf16(const std::byte* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load_u16(in + 2 * i));
}

void decode_block(const BlockQ4_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b.qs[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((b.qs[j] >> 4) - 8) * d;
  }
}

void decode_block(const BlockQ4_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(b.qs[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(b.qs[j] >> 4) * d + m;
  }
}

/// The 5-bit codes of Q5_0 and Q5_1.
void unpack_5bit(const uint8_t* qs, uint32_t high, int* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = (qs[j] & 15) | static_cast<int>((high >> j & 1) << 4);
    codes[j + 16] = (qs[j] >> 4) | static_cast<int>((high >> (j + 16) & 1) << 4);
  }
}

void decode_block(const BlockQ5_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  int codes[32];
  unpack_5bit(b.qs, b.qh, codes);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(codes[j] - 16) * d;
}

void decode_block(const BlockQ5_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  int codes[32];
  unpack_5bit(b.qs, b.qh, codes);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(codes[j]) * d + m;
}

void decode_block(const BlockQ8_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(b.qs[j]) * d;
}

/// Both types with a table of 16 values: the products are made once for a block.
void decode_table(const std::array<int8_t, 16>& values, float d, const uint8_t* qs, float* out) {
  float products[16];
  for (size_t v = 0; v < 16; ++v) products[v] = static_cast<float>(values[v]) * d;
  for (int j = 0; j < 16; ++j) {
    out[j] = products[qs[j] & 15];
    out[j + 16] = products[qs[j] >> 4];
  }
}

void decode_block(const BlockIQ4_NL& b, float* out) {
  decode_table(kIq4Values, f16_to_f32(b.d), b.qs, out);
}
void decode_block(const BlockMXFP4& b, float* out) {
  decode_table(kFp4Values, e8m0_half(b.e), b.qs, out);
}

void decode_block(const BlockQ4_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  const ScalesMins sub = unpack_scales_mins(b.scales);
  for (int k = 0; k < 8; k += 2) {
    const uint8_t* qs = b.qs + 16 * k;
    const float s0 = d * static_cast<float>(sub.scales[k]), m0 = dmin * static_cast<float>(sub.mins[k]);
    const float s1 = d * static_cast<float>(sub.scales[k + 1]), m1 = dmin * static_cast<float>(sub.mins[k + 1]);
    for (int l = 0; l < 32; ++l) out[32 * k + l] = s0 * static_cast<float>(qs[l] & 15) - m0;
    for (int l = 0; l < 32; ++l) out[32 * k + 32 + l] = s1 * static_cast<float>(qs[l] >> 4) - m1;
  }
}

void decode_block(const BlockQ5_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  const ScalesMins sub = unpack_scales_mins(b.scales);
  for (int k = 0; k < 8; ++k) {
    const uint8_t* qs = b.qs + 32 * (k / 2);
    const int shift = 4 * (k % 2);
    const float s = d * static_cast<float>(sub.scales[k]), m = dmin * static_cast<float>(sub.mins[k]);
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> shift & 15) | (b.qh[l] >> k & 1) << 4;
      out[32 * k + l] = s * static_cast<float>(q) - m;
    }
  }
}

void decode_block(const BlockQ6_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int plane = 0; plane < 8; ++plane) {  // 32 weights each: 128 * half + 32 * p
    const int half = plane / 4, p = plane % 4;
    const uint8_t* ql = b.ql + 64 * half + 32 * (p % 2);
    const uint8_t* qh = b.qh + 32 * half;
    const int low_shift = 4 * (p / 2), high_shift = 2 * p;
    for (int part = 0; part < 2; ++part) {
      const float s = d * static_cast<float>(b.scales[2 * plane + part]);
      for (int l = 16 * part; l < 16 * part + 16; ++l) {
        const int q = (ql[l] >> low_shift & 15) | (qh[l] >> high_shift & 3) << 4;
        out[32 * plane + l] = s * static_cast<float>(q - 32);
      }
    }
  }
}

void decode_block(const BlockNVFP4& b, float* out) {
  for (int g = 0; g < 4; ++g) {
    const float scale = ue4m3_half(b.scales[g]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t byte = b.qs[8 * g + j];
      out[16 * g + j] = static_cast<float>(kFp4Values[byte & 15]) * scale;
      out[16 * g + j + 8] = static_cast<float>(kFp4Values[byte >> 4]) * scale;
    }
  }
}

/// The types that are unpacked to integers first.
template <typename Block>
void decode_block(const Block& b, float* out) requires requires(Unpacked256& u) {
  unpack(b, u);
}
{
  Unpacked256 unpacked;
  unpack(b, unpacked);
  for (int k = 0; k < 16; ++k) {
    const float scale = unpacked.d * static_cast<float>(unpacked.scales[k]);
    float min = 0;
    if constexpr (std::is_same_v<Block, BlockQ2_K>) min = unpacked.dmin * static_cast<float>(unpacked.mins[k]);
    for (int i = 16 * k; i < 16 * k + 16; ++i) {
      out[i] = scale * static_cast<float>(unpacked.q[i]);
      if constexpr (std::is_same_v<Block, BlockQ2_K>) out[i] = out[i] - min;
    }
  }
}

template <typename Block>
void decode_blocks(const std::byte* in, float* out, int64_t n, int64_t block_length) {
  const auto* blocks = reinterpret_cast<const Block*>(in);
  for (int64_t b = 0; b < n / block_length; ++b) decode_block(blocks[b], out + b * block_length);
}

}  // namespace

void decode(TensorType type, const std::byte* blocks, float* out, int64_t n) {
  const TypeInfo& info = type_info(type);
  if (n < 0 || n % info.block_length != 0) {
    fail("cannot decode {} weights of type {}: their number must be a multiple of {}", n, info.name, info.block_length);
  }
  if (n == 0) return;
  switch (type) {
    case TensorType::f32:
      return decode_f32(blocks, out, n);
    case TensorType::f16:
      return decode_f16(blocks, out, n);
    case TensorType::bf16:
      return decode_bf16(blocks, out, n);
    case TensorType::q4_0:
      return decode_blocks<BlockQ4_0>(blocks, out, n, kBlock32);
    case TensorType::q4_1:
      return decode_blocks<BlockQ4_1>(blocks, out, n, kBlock32);
    case TensorType::q5_0:
      return decode_blocks<BlockQ5_0>(blocks, out, n, kBlock32);
    case TensorType::q5_1:
      return decode_blocks<BlockQ5_1>(blocks, out, n, kBlock32);
    case TensorType::q8_0:
      return decode_blocks<BlockQ8_0>(blocks, out, n, kBlock32);
    case TensorType::iq4_nl:
      return decode_blocks<BlockIQ4_NL>(blocks, out, n, kBlock32);
    case TensorType::mxfp4:
      return decode_blocks<BlockMXFP4>(blocks, out, n, kBlock32);
    case TensorType::q4_k:
      return decode_blocks<BlockQ4_K>(blocks, out, n, kSuperBlock);
    case TensorType::q5_k:
      return decode_blocks<BlockQ5_K>(blocks, out, n, kSuperBlock);
    case TensorType::q6_k:
      return decode_blocks<BlockQ6_K>(blocks, out, n, kSuperBlock);
    case TensorType::q2_k:
      return decode_blocks<BlockQ2_K>(blocks, out, n, kSuperBlock);
    case TensorType::q3_k:
      return decode_blocks<BlockQ3_K>(blocks, out, n, kSuperBlock);
    case TensorType::iq2_xxs:
      return decode_blocks<BlockIQ2_XXS>(blocks, out, n, kSuperBlock);
    case TensorType::iq2_xs:
      return decode_blocks<BlockIQ2_XS>(blocks, out, n, kSuperBlock);
    case TensorType::iq2_s:
      return decode_blocks<BlockIQ2_S>(blocks, out, n, kSuperBlock);
    case TensorType::iq3_xxs:
      return decode_blocks<BlockIQ3_XXS>(blocks, out, n, kSuperBlock);
    case TensorType::iq3_s:
      return decode_blocks<BlockIQ3_S>(blocks, out, n, kSuperBlock);
    case TensorType::iq1_s:
      return decode_blocks<BlockIQ1_S>(blocks, out, n, kSuperBlock);
    case TensorType::iq1_m:
      return decode_blocks<BlockIQ1_M>(blocks, out, n, kSuperBlock);
    case TensorType::iq4_xs:
      return decode_blocks<BlockIQ4_XS>(blocks, out, n, kSuperBlock);
    case TensorType::tq1_0:
      return decode_blocks<BlockTQ1_0>(blocks, out, n, kSuperBlock);
    case TensorType::tq2_0:
      return decode_blocks<BlockTQ2_0>(blocks, out, n, kSuperBlock);
    case TensorType::nvfp4:
      return decode_blocks<BlockNVFP4>(blocks, out, n, kBlock64);
    default:
      fail("weights of type {} cannot be decoded by this program", info.name);
  }
}

}  // namespace moetier
