// NEON dots of the K types: super-blocks of 256 weights with integer sub-scales. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_neon.h"
#include "quant/blocks.h"

namespace moetier::neon {

/// The activation rows of a tile at one super-block.
struct Tile256 {
  const std::byte* const* x;
  int64_t b;
  int count;

  MOETIER_INLINE const Codes256& block(int t) const {
    return reinterpret_cast<const Codes256*>(row_or_last(x, t, count))[b];
  }
};

/// totals += scale * (u . codes), for kColumns columns from `column` on and all activation rows.
template <typename Engine, int kColumns>
MOETIER_INLINE void add_sub_block(const uint8x16_t* u, const Ints8& scale, const Tile256& tile, int column,
                                  typename Engine::Sums* totals) {
  int8x16_t s[kColumns / 2];
  for (int i = 0; i < kColumns / 2; ++i) s[i] = vreinterpretq_s8_u8(u[i]);
  const typename Engine::Sums factor = Engine::spread(scale);
  for (int t = 0; t < tile.count; t += Engine::kActivations) {
    const int8_t* codes[Engine::kActivations];
    for (int a = 0; a < Engine::kActivations; ++a) codes[a] = tile.block(t + a).codes + column;
    totals[t / Engine::kActivations].add_scaled(Engine::template dots<kColumns>(s, codes), factor);
  }
}

// --- Q4_K and Q5_K ---

/// Byte kByte of each row's dword.
template <int kByte>
MOETIER_INLINE Ints8 byte_of(const uint32x4_t v[2]) {
  const auto four = [](uint32x4_t x) {
    return vreinterpretq_s32_u32(vandq_u32(vshlq_u32(x, vdupq_n_s32(-8 * kByte)), vdupq_n_u32(255)));
  };
  return {four(v[0]), four(v[1])};
}

/// What stands at the start of the eight rows' blocks.
struct ScalesMinsOf8 {
  Floats8 d, dmin;
  uint32x4_t scales[2][2];  ///< of sub-blocks 0-3 and 4-7, a byte each; of rows 0-3 and 4-7
  int16x8_t mins[8];        ///< of each sub-block, all rows

  MOETIER_INLINE explicit ScalesMinsOf8(const Rows8& rows) {
    uint8x16_t bytes[8];
    uint32x4_t v[8];
    Quads::load16(rows, 0, bytes);
    for (int i = 0; i < 8; ++i) v[i] = vreinterpretq_u32_u8(bytes[i]);
    d = low_halves_to_floats(v);
    dmin = high_halves_to_floats(v);
    // The same unpacking as unpack_scales_mins(), for eight rows.
    const uint32x4_t six = vdupq_n_u32(0x3f3f3f3fu), nibble = vdupq_n_u32(0x0f0f0f0fu), top = vdupq_n_u32(0x30303030u);
    const auto join = [&](uint32x4_t low, uint32x4_t high) {
      return vorrq_u32(vandq_u32(low, nibble), vandq_u32(vshrq_n_u32(high, 2), top));
    };
    uint8x16x2_t mins03, mins47;
    for (int h = 0; h < 2; ++h) {
      scales[0][h] = vandq_u32(v[2 + h], six);
      scales[1][h] = join(v[6 + h], v[2 + h]);
      mins03.val[h] = vreinterpretq_u8_u32(vandq_u32(v[4 + h], six));
      mins47.val[h] = vreinterpretq_u8_u32(join(vshrq_n_u32(v[6 + h], 4), v[4 + h]));
    }
    // Byte k of the eight dwords as words; indices from 128 on give zero.
    static constexpr uint8_t kWords[16] = {0, 128, 4, 128, 8, 128, 12, 128, 16, 128, 20, 128, 24, 128, 28, 128};
    for (int k = 0; k < 4; ++k) {
      const uint8x16_t index = vaddq_u8(vld1q_u8(kWords), vdupq_n_u8(static_cast<uint8_t>(k)));
      mins[k] = vreinterpretq_s16_u8(vqtbl2q_u8(mins03, index));
      mins[4 + k] = vreinterpretq_s16_u8(vqtbl2q_u8(mins47, index));
    }
  }

  /// flush(d*a) * float(total) - flush(dmin*a) * float(sum of min * sum c).
  MOETIER_INLINE Floats8 term(const Codes256& x, const Ints8& total) const {
    const int16x8_t sums = vld1q_s16(x.sums32);
    const int16x4_t low = vget_low_s16(sums), high = vget_high_s16(sums);
    const auto four = [&](auto half) {
      int32x4_t sum = vmull_lane_s16(half(mins[0]), low, 0);
      sum = vmlal_lane_s16(sum, half(mins[1]), low, 1);
      sum = vmlal_lane_s16(sum, half(mins[2]), low, 2);
      sum = vmlal_lane_s16(sum, half(mins[3]), low, 3);
      sum = vmlal_lane_s16(sum, half(mins[4]), high, 0);
      sum = vmlal_lane_s16(sum, half(mins[5]), high, 1);
      sum = vmlal_lane_s16(sum, half(mins[6]), high, 2);
      return vmlal_lane_s16(sum, half(mins[7]), high, 3);
    };
    const Ints8 min_sum{four([](int16x8_t v) { return vget_low_s16(v); }),
                        four([](int16x8_t v) { return vget_high_s16(v); })};
    return scaled(d, x.scale, total) - scaled(dmin, x.scale, min_sum);
  }
};

struct Q4_K {
  using Block = BlockQ4_K;
  template <typename Layout>
  struct FifthBits {
    MOETIER_INLINE explicit FifthBits(const Rows8&) {}
    template <int kSubBlock>
    MOETIER_INLINE void add(uint8x16_t*) const {}
  };
};

struct Q5_K {
  using Block = BlockQ5_K;
  template <typename Layout>
  struct FifthBits {
    uint8x16_t bits[16];  ///< bit k: the fifth bit of sub-block k's weight
    MOETIER_INLINE explicit FifthBits(const Rows8& rows) {
      Layout::load16(rows, offsetof(Block, qh), bits);
      Layout::load16(rows, offsetof(Block, qh) + 16, bits + 8);
    }
    template <int kSubBlock>
    MOETIER_INLINE void add(uint8x16_t* u) const {
      const uint8x16_t bit = vdupq_n_u8(1u << kSubBlock), sixteen = vdupq_n_u8(16);
      for (int i = 0; i < 16; ++i) u[i] = vorrq_u8(u[i], vandq_u8(vtstq_u8(bits[i], bit), sixteen));
    }
  };
};

/// The sub-blocks 2 * kPair (low nibbles) and 2 * kPair + 1 (high nibbles).
template <typename T, typename Engine, int kPair, typename FifthBits>
MOETIER_INLINE void add_pair(const Rows8& rows, const ScalesMinsOf8& head, const FifthBits& fifth, const Tile256& tile,
                             typename Engine::Sums* totals) {
  uint8x16_t packed[16], u[16];
  Engine::Layout::load16(rows, offsetof(typename T::Block, qs) + 32 * kPair, packed);
  Engine::Layout::load16(rows, offsetof(typename T::Block, qs) + 32 * kPair + 16, packed + 8);
  const uint32x4_t* scales = head.scales[kPair / 2];
  for (int i = 0; i < 16; ++i) u[i] = vandq_u8(packed[i], vdupq_n_u8(15));
  fifth.template add<2 * kPair>(u);
  add_sub_block<Engine, 32>(u, byte_of<2 * (kPair % 2)>(scales), tile, 64 * kPair, totals);
  for (int i = 0; i < 16; ++i) u[i] = vshrq_n_u8(packed[i], 4);
  fifth.template add<2 * kPair + 1>(u);
  add_sub_block<Engine, 32>(u, byte_of<2 * (kPair % 2) + 1>(scales), tile, 64 * kPair + 32, totals);
}

/// Adds one super-block's terms to the segments.
template <typename T, typename Engine>
MOETIER_INLINE void add_block_k45(const Rows8& rows, const Tile256& tile, typename Engine::Sums* totals,
                                  Floats8* segment) {
  const ScalesMinsOf8 head(rows);
  const typename T::template FifthBits<typename Engine::Layout> fifth(rows);
  add_pair<T, Engine, 0>(rows, head, fifth, tile, totals);
  add_pair<T, Engine, 1>(rows, head, fifth, tile, totals);
  add_pair<T, Engine, 2>(rows, head, fifth, tile, totals);
  add_pair<T, Engine, 3>(rows, head, fifth, tile, totals);
  for (int t = 0; t < tile.count; ++t) {
    const Ints8 total = Engine::row_sums(totals[t / Engine::kActivations], t % Engine::kActivations);
    segment[t] = segment[t] + head.term(tile.block(t), total);
  }
}

// --- Q6_K ---

struct Q6_K {
  using Block = BlockQ6_K;
};

/// Signed byte kByte of each row's dword.
template <int kByte>
MOETIER_INLINE Ints8 signed_byte_of(const uint8x16_t v[2]) {
  const auto four = [](uint8x16_t x) {
    return vshrq_n_s32(vshlq_s32(vreinterpretq_s32_u8(x), vdupq_n_s32(24 - 8 * kByte)), 24);
  };
  return {four(v[0]), four(v[1])};
}

/// Half kHalf (16 columns of each of the four planes) of the 128 weights number kH: sub-blocks 8 kH + 2 p + kHalf.
template <typename Engine, int kH, int kHalf>
MOETIER_INLINE void add_planes(const Rows8& rows, const uint8x16_t scales[8], const Tile256& tile,
                               typename Engine::Sums* totals) {
  using Layout = typename Engine::Layout;
  uint8x16_t low[8], high[8], u[8];
  // Plane p has its low bits in nibble p / 2 of the low bytes number p mod 2, the high ones at bit 2p.
  const auto add = [&](const Ints8& scale, int p, auto low_bits, auto high_bits) __attribute__((always_inline)) {
    for (int i = 0; i < 8; ++i) {
      u[i] = vsubq_u8(vorrq_u8(low_bits(low[i]), vandq_u8(high_bits(high[i]), vdupq_n_u8(48))), vdupq_n_u8(32));
    }
    add_sub_block<Engine, 16>(u, scale, tile, 128 * kH + 32 * p + 16 * kHalf, totals);
  };
  const auto low_nibble = [](uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); };
  const auto high_nibble = [](uint8x16_t v) { return vshrq_n_u8(v, 4); };
  // The scales of planes 0 and 1 are in dword 2 kH, those of planes 2 and 3 in the next.
  const uint8x16_t *scales01 = scales + 4 * kH, *scales23 = scales + 4 * kH + 2;
  Layout::load16(rows, offsetof(BlockQ6_K, qh) + 32 * kH + 16 * kHalf, high);
  Layout::load16(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 16 * kHalf, low);
  add(signed_byte_of<kHalf>(scales01), 0, low_nibble, [](uint8x16_t v) { return vshlq_n_u8(v, 4); });
  add(signed_byte_of<kHalf>(scales23), 2, high_nibble, [](uint8x16_t v) { return v; });
  Layout::load16(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 32 + 16 * kHalf, low);
  add(signed_byte_of<2 + kHalf>(scales01), 1, low_nibble, [](uint8x16_t v) { return vshlq_n_u8(v, 2); });
  add(signed_byte_of<2 + kHalf>(scales23), 3, high_nibble, [](uint8x16_t v) { return vshrq_n_u8(v, 2); });
}

template <typename Engine>
MOETIER_INLINE void add_block_k6(const Rows8& rows, const Tile256& tile, typename Engine::Sums* totals,
                                 Floats8* segment) {
  uint8x16_t scales[8];
  Quads::load16(rows, offsetof(BlockQ6_K, scales), scales);
  const Floats8 d = halves_to_floats(gather16(rows, offsetof(BlockQ6_K, d)));
  add_planes<Engine, 0, 0>(rows, scales, tile, totals);
  add_planes<Engine, 0, 1>(rows, scales, tile, totals);
  add_planes<Engine, 1, 0>(rows, scales, tile, totals);
  add_planes<Engine, 1, 1>(rows, scales, tile, totals);
  for (int t = 0; t < tile.count; ++t) {
    const Ints8 total = Engine::row_sums(totals[t / Engine::kActivations], t % Engine::kActivations);
    segment[t] = segment[t] + scaled(d, tile.block(t).scale, total);
  }
}

// --- the loop ---

template <typename T, typename Engine, bool kOne>
MOETIER_INLINE void panel256(Rows8 rows, int64_t blocks, const std::byte* ahead, const std::byte* const* x, int n,
                             float (*out)[8]) {
  constexpr int kBlocksPerSegment = 2, kRows = kOne ? 1 : kDotTile;
  constexpr size_t kBytes = sizeof(typename T::Block);
  const int count = kOne ? 1 : n;
  TileSums<kRows> sums;
  sums.clear(count);
  typename Engine::Sums totals[kRows];
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    for (int t = 0; t < count; t += Engine::kActivations) totals[t / Engine::kActivations].clear();
    const Tile256 tile{x, b, count};
    if constexpr (std::is_same_v<T, Q6_K>) {
      add_block_k6<Engine>(rows, tile, totals, sums.segment);
    } else {
      add_block_k45<T, Engine>(rows, tile, totals, sums.segment);
    }
    rows.advance(kBytes);
    if ((b + 1) % kBlocksPerSegment == 0 || b + 1 == blocks) sums.end_segment(count);
  }
  sums.store(count, out);
}

/// One: the engine for one activation row, Many: for more.
template <typename T, typename One, typename Many, DotFn DotTable::*kPortable>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 256;
  for_panels(w, first, last, out, n, [&](const Rows8& rows, const std::byte* ahead, float(*sums)[8]) {
    if (n == 1) {
      panel256<T, One, true>(rows, blocks, ahead, x, n, sums);
    } else {
      panel256<T, Many, false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

}  // namespace moetier::neon
