// The dots in plain C++: one loop for the types with 32 weights in a block, one for the K types, one for floats. What
// differs between types is how a block is decoded to integers.
#include <algorithm>
#include <cstring>

#include "compute/cpu/dot_portable.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/math.h"
#include "quant/blocks.h"
#include "quant/half.h"

namespace moetier {
namespace {

// --- 32 weights in a block ---

struct Decoded32 {
  float d, m;  ///< m only for types with a minimum
  int8_t q[32];
};

/// Low nibbles to the first 16 codes, high ones to the last.
template <typename ToCode>
void decode_nibbles(const uint8_t* qs, ToCode to_code, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<int8_t>(to_code(qs[j] & 15, j));
    q[j + 16] = static_cast<int8_t>(to_code(qs[j] >> 4, j + 16));
  }
}

void decode(const BlockQ8_0& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  std::memcpy(out.q, block.qs, sizeof(out.q));
}
void decode(const BlockQ4_0& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  decode_nibbles(
      block.qs, [](int nibble, int) { return nibble - 8; }, out.q);
}
void decode(const BlockQ4_1& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  out.m = f16_to_f32(block.m);
  decode_nibbles(
      block.qs, [](int nibble, int) { return nibble; }, out.q);
}
int fifth_bit(uint32_t qh, int j) {
  return static_cast<int>((qh >> j) & 1u) << 4;
}
void decode(const BlockQ5_0& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  const uint32_t qh = block.qh;
  decode_nibbles(
      block.qs, [qh](int nibble, int j) { return (nibble | fifth_bit(qh, j)) - 16; }, out.q);
}
void decode(const BlockQ5_1& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  out.m = f16_to_f32(block.m);
  const uint32_t qh = block.qh;
  decode_nibbles(
      block.qs, [qh](int nibble, int j) { return nibble | fifth_bit(qh, j); }, out.q);
}
void decode(const BlockIQ4_NL& block, Decoded32& out) {
  out.d = f16_to_f32(block.d);
  decode_nibbles(
      block.qs, [](int nibble, int) { return kIq4Values[static_cast<size_t>(nibble)]; }, out.q);
}
void decode(const BlockMXFP4& block, Decoded32& out) {
  out.d = e8m0_half(block.e);
  decode_nibbles(
      block.qs, [](int nibble, int) { return kFp4Values[static_cast<size_t>(nibble)]; }, out.q);
}

template <typename Block>
constexpr bool kHasMinimum = requires(Block b) {
  b.m;
};

template <typename Block>
float term32(const Decoded32& w, const Codes32& x) {
  int sum = 0;
  for (int i = 0; i < 32; ++i) sum += w.q[i] * x.codes[i];
  float term = num::flush(num::flush(w.d) * x.scale) * static_cast<float>(sum);
  if constexpr (kHasMinimum<Block>) {
    term = term + num::flush(num::flush(w.m) * x.scale) * static_cast<float>(x.sum);
  }
  return term;
}

// --- 256 weights in a block ---

struct Decoded256 {
  float d, dmin;  ///< dmin only for types with minima
  int8_t q[256];
  int8_t scales[16];  ///< Q6_K: of each 16 weights; Q4_K, Q5_K: the first 8, of each 32
  uint8_t mins[8];
};

template <typename Block>
void decode_scales(const Block& block, Decoded256& out) {
  out.d = f16_to_f32(block.d);
  out.dmin = f16_to_f32(block.dmin);
  const ScalesMins packed = unpack_scales_mins(block.scales);
  std::memcpy(out.scales, packed.scales, sizeof(packed.scales));
  std::memcpy(out.mins, packed.mins, sizeof(out.mins));
}
void decode(const BlockQ4_K& block, Decoded256& out) {
  decode_scales(block, out);
  for (int pair = 0; pair < 4; ++pair) {
    int8_t* q = out.q + 64 * pair;
    for (int l = 0; l < 32; ++l) {
      const int byte = block.qs[32 * pair + l];
      q[l] = static_cast<int8_t>(byte & 15);
      q[l + 32] = static_cast<int8_t>(byte >> 4);
    }
  }
}
void decode(const BlockQ5_K& block, Decoded256& out) {
  decode_scales(block, out);
  for (int pair = 0; pair < 4; ++pair) {
    int8_t* q = out.q + 64 * pair;
    for (int l = 0; l < 32; ++l) {
      const int byte = block.qs[32 * pair + l], high = block.qh[l] >> (2 * pair);
      q[l] = static_cast<int8_t>((byte & 15) | ((high & 1) << 4));
      q[l + 32] = static_cast<int8_t>((byte >> 4) | ((high & 2) << 3));
    }
  }
}
void decode(const BlockQ6_K& block, Decoded256& out) {
  out.d = f16_to_f32(block.d);
  std::memcpy(out.scales, block.scales, sizeof(out.scales));
  for (int h = 0; h < 2; ++h) {
    int8_t* q = out.q + 128 * h;
    for (int l = 0; l < 32; ++l) {
      const int a = block.ql[64 * h + l], b = block.ql[64 * h + 32 + l], high = block.qh[32 * h + l];
      q[l] = static_cast<int8_t>(((a & 15) | ((high & 3) << 4)) - 32);
      q[l + 32] = static_cast<int8_t>(((b & 15) | ((high & 12) << 2)) - 32);
      q[l + 64] = static_cast<int8_t>(((a >> 4) | (high & 48)) - 32);
      q[l + 96] = static_cast<int8_t>(((b >> 4) | ((high & 192) >> 2)) - 32);
    }
  }
}

/// Sum over sub-blocks of scale * sum q*c.
template <int kLength>
int scaled_sum(const Decoded256& w, const Codes256& x) {
  int total = 0;
  for (int k = 0; k < 256 / kLength; ++k) {
    int sum = 0;
    for (int i = 0; i < kLength; ++i) sum += w.q[k * kLength + i] * x.codes[k * kLength + i];
    total += w.scales[k] * sum;
  }
  return total;
}

template <typename Block>
float term256(const Decoded256& w, const Codes256& x) {
  const float da = num::flush(num::flush(w.d) * x.scale);
  if constexpr (std::is_same_v<Block, BlockQ6_K>) {
    return da * static_cast<float>(scaled_sum<16>(w, x));
  } else {
    int mins = 0;
    for (int k = 0; k < 8; ++k) mins += w.mins[k] * x.sums32[k];
    const float scaled = da * static_cast<float>(scaled_sum<32>(w, x));
    return scaled - num::flush(num::flush(w.dmin) * x.scale) * static_cast<float>(mins);
  }
}

template <typename Block>
constexpr DotFn kDot32 = portable::dot<Block, Decoded32, Codes32, decode, term32<Block>>;
template <typename Block>
constexpr DotFn kDot256 = portable::dot<Block, Decoded256, Codes256, decode, term256<Block>>;

// --- floats ---

float widen(float w) {
  return w;
}
float widen_f16(uint16_t w) {
  return f16_to_f32(w);
}
float widen_bf16(uint16_t w) {
  return bf16_to_f32(w);
}

template <bool kWithFlush, typename T, float (*kWiden)(T)>
float dot16(const T* w, const float* x, int64_t n) {
  float p[16] = {};
  for (int64_t c = 0; c < n; c += 16) {
    const int64_t width = std::min<int64_t>(16, n - c);
    for (int64_t i = 0; i < width; ++i) {
      const float product = kWiden(w[c + i]) * x[c + i];
      p[i] = p[i] + (kWithFlush ? num::flush(product) : product);
    }
  }
  return num::tree16(p);
}

template <typename T, float (*kDot)(const T*, const float*, int64_t)>
void float_rows(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                int n) {
  for (int64_t r = first; r < last; ++r) {
    const auto* row = reinterpret_cast<const T*>(w.data + static_cast<size_t>(r) * w.row_bytes);
    for (int t = 0; t < n; ++t) out[t][r - first] = kDot(row, reinterpret_cast<const float*>(x[t]), w.columns);
  }
}

}  // namespace

const FloatDots& portable_float_dots() {
  static constexpr FloatDots dots{
      dot16<false, float, widen>, dot16<false, uint16_t, widen_f16>, dot16<false, uint16_t, widen_bf16>,
      dot16<true, float, widen>,  dot16<true, uint16_t, widen_f16>,  dot16<true, uint16_t, widen_bf16>,
  };
  return dots;
}

const FloatDots& float_dots(Isa isa) {
  isa = resolve_isa(isa);
  if (isa == Isa::neon) return *neon_float_dots();
  return isa_has_avx2(isa) ? *avx2_float_dots() : portable_float_dots();
}

const DotTable& portable_dots() {
  static const DotTable all = [] {
    DotTable table{};
    table.f32 = float_rows<float, dot16<true, float, widen>>;
    table.f16 = float_rows<uint16_t, dot16<true, uint16_t, widen_f16>>;
    table.bf16 = float_rows<uint16_t, dot16<true, uint16_t, widen_bf16>>;
    table.q8_0 = kDot32<BlockQ8_0>;
    table.q4_0 = kDot32<BlockQ4_0>;
    table.q4_1 = kDot32<BlockQ4_1>;
    table.q5_0 = kDot32<BlockQ5_0>;
    table.q5_1 = kDot32<BlockQ5_1>;
    table.iq4_nl = kDot32<BlockIQ4_NL>;
    table.mxfp4 = kDot32<BlockMXFP4>;
    table.q4_k = kDot256<BlockQ4_K>;
    table.q5_k = kDot256<BlockQ5_K>;
    table.q6_k = kDot256<BlockQ6_K>;
    portable::add_low_bit_dots(table);
    return table;
  }();
  return all;
}

}  // namespace moetier
