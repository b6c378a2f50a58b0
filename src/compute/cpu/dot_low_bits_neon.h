// NEON dots of the types below four bits, their relatives and NVFP4: eight rows' blocks are decoded to a scratch in the
// first-level cache, 16 columns at a time are then brought into the engine's layout and multiplied with all activation
// rows. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_k_neon.h"
#include "compute/cpu/row_blocks_neon.h"

namespace moetier::neon {

/// Byte `index` of each row's dword, signed or not.
MOETIER_INLINE Ints8 bytes_of(const uint8x16_t v[2], int index) {
  const int32x4_t left = vdupq_n_s32(24 - 8 * index);
  const auto four = [&](uint8x16_t x) { return vshrq_n_s32(vshlq_s32(vreinterpretq_s32_u8(x), left), 24); };
  return {four(v[0]), four(v[1])};
}

/// The sum of min * sum c; mins are below 16.
MOETIER_INLINE Ints8 sum_of_mins(const uint8x16_t mins[8], const Codes256& x) {
  Ints8 sum{vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int k = 0; k < 16; ++k) {
    const Ints8 min = bytes_of(mins + 2 * (k / 4), k % 4);
    sum.low = vmlaq_n_s32(sum.low, min.low, x.sums16[k]);
    sum.high = vmlaq_n_s32(sum.high, min.high, x.sums16[k]);
  }
  return sum;
}

MOETIER_INLINE Floats8 gather_floats(const Rows8& rows, size_t offset) {
  float v[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&v[r], rows.at(r, offset), sizeof(v[r]));
  return {vld1q_f32(v), vld1q_f32(v + 4)};
}

/// Adds one super-block's terms to the segments.
template <typename Block, typename Engine>
MOETIER_INLINE void add_low_bit_block(const Rows8& rows, const Grids& grids, const Tile256& tile,
                                      typename Engine::Sums* totals, Floats8* segment) {
  Unpacked256 unpacked[8];
  for (int r = 0; r < 8; ++r) unpack_row(*reinterpret_cast<const Block*>(rows.at(r, 0)), grids, unpacked[r]);
  const Rows8 decoded{reinterpret_cast<const std::byte*>(unpacked), sizeof(Unpacked256)};
  uint8x16_t scales[8], codes[8];
  Quads::load16(decoded, offsetof(Unpacked256, scales), scales);
  for (int k = 0; k < 16; ++k) {
    Engine::Layout::load16(decoded, offsetof(Unpacked256, q) + static_cast<size_t>(16 * k), codes);
    add_sub_block<Engine, 16>(codes, bytes_of(scales + 2 * (k / 4), k % 4), tile, 16 * k, totals);
  }
  const Floats8 d = gather_floats(decoded, offsetof(Unpacked256, d));
  for (int t = 0; t < tile.count; ++t) {
    const Codes256& x = tile.block(t);
    Floats8 term = scaled(d, x.scale, Engine::row_sums(totals[t / Engine::kActivations], t % Engine::kActivations));
    if constexpr (std::is_same_v<Block, BlockQ2_K>) {
      uint8x16_t mins[8];
      Quads::load16(decoded, offsetof(Unpacked256, mins), mins);
      term = term - scaled(gather_floats(decoded, offsetof(Unpacked256, dmin)), x.scale, sum_of_mins(mins, x));
    }
    segment[t] = segment[t] + term;
  }
}

template <typename Block, typename Engine, bool kOne>
MOETIER_INLINE void low_bit_panel(Rows8 rows, const Grids& grids, int64_t blocks, const std::byte* ahead,
                                  const std::byte* const* x, int n, float (*out)[8]) {
  constexpr int kBlocksPerSegment = 2, kRows = kOne ? 1 : kDotTile;
  const int count = kOne ? 1 : n;
  TileSums<kRows> sums;
  sums.clear(count);
  typename Engine::Sums totals[kRows];
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * sizeof(Block));
    ahead += 8 * sizeof(Block);
    for (int t = 0; t < count; t += Engine::kActivations) totals[t / Engine::kActivations].clear();
    add_low_bit_block<Block, Engine>(rows, grids, Tile256{x, b, count}, totals, sums.segment);
    rows.advance(sizeof(Block));
    if ((b + 1) % kBlocksPerSegment == 0 || b + 1 == blocks) sums.end_segment(count);
  }
  sums.store(count, out);
}

/// One: the engine for one activation row, Many: for more.
template <typename Block, typename One, typename Many, DotFn DotTable::*kPortable>
void low_bit_dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                 int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 256;
  const Grids& tables = grids();
  for_panels(w, first, last, out, n, [&](const Rows8& rows, const std::byte* ahead, float(*sums)[8]) {
    if (n == 1) {
      low_bit_panel<Block, One, true>(rows, tables, blocks, ahead, x, n, sums);
    } else {
      low_bit_panel<Block, Many, false>(rows, tables, blocks, ahead, x, n, sums);
    }
  });
}

// --- NVFP4: 64 weights in a block, a scale for each 16, two blocks of activations ---

/// ue4m3_half() of byte kGroup of each row's dword.
template <int kGroup>
MOETIER_INLINE Floats8 scales_of_group(const uint32x4_t dwords[2]) {
  const auto four = [](uint32x4_t v) {
    const uint32x4_t s = vandq_u32(vshlq_u32(v, vdupq_n_s32(-8 * kGroup)), vdupq_n_u32(0x7f));
    const uint32x4_t normal = vaddq_u32(vshlq_n_u32(s, 20), vdupq_n_u32(119u << 23));
    const float32x4_t small = vmulq_n_f32(vcvtq_f32_u32(s), 0x1p-10f);
    const uint32x4_t value = vbslq_u32(vcltq_u32(s, vdupq_n_u32(8)), vreinterpretq_u32_f32(small), normal);
    return vreinterpretq_f32_u32(vbicq_u32(value, vceqq_u32(s, vdupq_n_u32(0x7f))));
  };
  return {four(dwords[0]), four(dwords[1])};
}

/// 16 codes of each row: low nibbles are the first eight.
MOETIER_INLINE void decode_group(const Rows8& rows, size_t offset, int8_t (*codes)[16]) {
  const int8x16_t values = vld1q_s8(kFp4Values.data());
  for (int r = 0; r < 8; ++r) {
    const uint8x8_t v = vld1_u8(rows.at(r, offset));
    vst1q_s8(codes[r], vqtbl1q_s8(values, vcombine_u8(vand_u8(v, vdup_n_u8(15)), vshr_n_u8(v, 4))));
  }
}

/// part[t] = p_g of docs/numbers.md.
template <typename Engine, int kGroup>
MOETIER_INLINE void nvfp4_group(const Rows8& rows, const uint32x4_t scales[2], const std::byte* const* x, int64_t b,
                                int count, Floats8* part) {
  int8_t codes[8][16];
  uint8x16_t u[8];
  decode_group(rows, offsetof(BlockNVFP4, qs) + 8 * kGroup, codes);
  Engine::Layout::load16({reinterpret_cast<const std::byte*>(codes), 16}, 0, u);
  int8x16_t s[8];
  for (int i = 0; i < 8; ++i) s[i] = vreinterpretq_s8_u8(u[i]);
  const Floats8 d = scales_of_group<kGroup>(scales);
  const auto block = [&](int t) -> const Codes32& {
    return reinterpret_cast<const Codes32*>(row_or_last(x, t, count))[2 * b + kGroup / 2];
  };
  for (int t = 0; t < count; t += Engine::kActivations) {
    const int8_t* from[Engine::kActivations];
    for (int a = 0; a < Engine::kActivations; ++a) from[a] = block(t + a).codes + 16 * (kGroup % 2);
    const auto dots = Engine::template dots<16>(s, from);
    for (int a = 0; a < Engine::kActivations && t + a < count; ++a) {
      part[t + a] = scaled(d, block(t + a).scale, Engine::row_sums(dots, a));
    }
  }
}

template <typename Engine, bool kOne>
MOETIER_INLINE void nvfp4_panel(Rows8 rows, int64_t blocks, const std::byte* ahead, const std::byte* const* x, int n,
                                float (*out)[8]) {
  constexpr int kBlocksPerSegment = 8, kRows = kOne ? 1 : kDotTile;
  const int count = kOne ? 1 : n;
  TileSums<kRows> sums;
  sums.clear(count);
  Floats8 part[4][kRows];
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * sizeof(BlockNVFP4));
    ahead += 8 * sizeof(BlockNVFP4);
    uint32x4_t scales[2];
    gather32(rows, offsetof(BlockNVFP4, scales), scales);
    nvfp4_group<Engine, 0>(rows, scales, x, b, count, part[0]);
    nvfp4_group<Engine, 1>(rows, scales, x, b, count, part[1]);
    nvfp4_group<Engine, 2>(rows, scales, x, b, count, part[2]);
    nvfp4_group<Engine, 3>(rows, scales, x, b, count, part[3]);
    for (int t = 0; t < count; ++t) {
      sums.segment[t] = sums.segment[t] + ((part[0][t] + part[1][t]) + (part[2][t] + part[3][t]));
    }
    rows.advance(sizeof(BlockNVFP4));
    if ((b + 1) % kBlocksPerSegment == 0 || b + 1 == blocks) sums.end_segment(count);
  }
  sums.store(count, out);
}

template <typename One, typename Many>
void nvfp4_dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
               int n) {
  if (w.rows < 8) return portable_dots().nvfp4(w, first, last, x, out, n);
  const int64_t blocks = w.columns / kBlock64;
  for_panels(w, first, last, out, n, [&](const Rows8& rows, const std::byte* ahead, float(*sums)[8]) {
    if (n == 1) {
      nvfp4_panel<One, true>(rows, blocks, ahead, x, n, sums);
    } else {
      nvfp4_panel<Many, false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

}  // namespace moetier::neon
