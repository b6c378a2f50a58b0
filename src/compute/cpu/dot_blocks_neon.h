// NEON dots of the types with 32 weights in a block. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_neon.h"
#include "quant/blocks.h"

namespace moetier::neon {

// How a type's block becomes 16 vectors of signed codes in the engine's layout. load() returns the scales, and writes
// the minima of types that have them.

/// Low nibbles are columns 0-15, high ones 16-31.
template <typename Layout>
MOETIER_INLINE void load_nibbles(const Rows8& rows, size_t offset, uint8x16_t u[16]) {
  Layout::load16(rows, offset, u);
  for (int i = 0; i < 8; ++i) {
    u[i + 8] = vshrq_n_u8(u[i], 4);
    u[i] = vandq_u8(u[i], vdupq_n_u8(15));
  }
}

template <typename Layout>
MOETIER_INLINE void load_by_table(const Rows8& rows, size_t offset, const std::array<int8_t, 16>& values,
                                  int8x16_t s[16]) {
  uint8x16_t u[16];
  load_nibbles<Layout>(rows, offset, u);
  const int8x16_t table = vld1q_s8(values.data());
  for (int i = 0; i < 16; ++i) s[i] = vqtbl1q_s8(table, u[i]);
}

struct Q4_0 {
  using Block = BlockQ4_0;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8&) {
    uint8x16_t u[16];
    load_nibbles<Layout>(rows, offsetof(Block, qs), u);
    for (int i = 0; i < 16; ++i) s[i] = vsubq_s8(vreinterpretq_s8_u8(u[i]), vdupq_n_s8(8));
    return halves_to_floats(gather16(rows, offsetof(Block, d)));
  }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8&) {
    uint8x16_t u[16], set[16];
    uint32x4_t qh[2];
    load_nibbles<Layout>(rows, offsetof(Block, qs), u);
    gather32(rows, offsetof(Block, qh), qh);
    Layout::bit_masks(qh, set);
    // The fifth bit is worth 16, which all codes are less: 16 is taken off where it is not set.
    for (int i = 0; i < 16; ++i) s[i] = vreinterpretq_s8_u8(vsubq_u8(u[i], vbicq_u8(vdupq_n_u8(16), set[i])));
    return halves_to_floats(gather16(rows, offsetof(Block, d)));
  }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8& m) {
    uint8x16_t u[16];
    uint32x4_t head[2];
    load_nibbles<Layout>(rows, offsetof(Block, qs), u);
    for (int i = 0; i < 16; ++i) s[i] = vreinterpretq_s8_u8(u[i]);
    gather32(rows, 0, head);
    m = high_halves_to_floats(head);
    return low_halves_to_floats(head);
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8& m) {
    uint8x16_t u[16], set[16];
    uint32x4_t head[2], qh[2];
    load_nibbles<Layout>(rows, offsetof(Block, qs), u);
    gather32(rows, offsetof(Block, qh), qh);
    Layout::bit_masks(qh, set);
    for (int i = 0; i < 16; ++i) s[i] = vreinterpretq_s8_u8(vorrq_u8(u[i], vandq_u8(vdupq_n_u8(16), set[i])));
    gather32(rows, 0, head);
    m = high_halves_to_floats(head);
    return low_halves_to_floats(head);
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8&) {
    uint8x16_t u[16];
    Layout::load16(rows, offsetof(Block, qs), u);
    Layout::load16(rows, offsetof(Block, qs) + 16, u + 8);
    for (int i = 0; i < 16; ++i) s[i] = vreinterpretq_s8_u8(u[i]);
    return halves_to_floats(gather16(rows, offsetof(Block, d)));
  }
};

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8&) {
    load_by_table<Layout>(rows, offsetof(Block, qs), kIq4Values, s);
    return halves_to_floats(gather16(rows, offsetof(Block, d)));
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  template <typename Layout>
  MOETIER_INLINE static Floats8 load(const Rows8& rows, int8x16_t s[16], Floats8&) {
    load_by_table<Layout>(rows, offsetof(Block, qs), kFp4Values, s);
    // 2^(e - 128) has the exponent field e - 1; below 2^-100 (e < 28) the scale is flushed.
    const auto scale = [](uint32x4_t e) {
      const uint32x4_t bits = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
      return vreinterpretq_f32_u32(vandq_u32(bits, vcgtq_u32(e, vdupq_n_u32(27))));
    };
    // Each exponent byte comes with its neighbour in the upper half of the word.
    const uint16x8_t e = vandq_u16(gather16(rows, offsetof(Block, e)), vdupq_n_u16(255));
    return {scale(vmovl_u16(vget_low_u16(e))), scale(vmovl_high_u16(e))};
  }
};

template <typename Block>
constexpr bool kHasMinimum = requires(Block b) {
  b.m;
};

/// Eight rows times `n` (kOne: 1) activation rows.
template <typename T, typename Engine, bool kOne>
MOETIER_INLINE void panel32(Rows8 rows, int64_t blocks, const std::byte* ahead, const std::byte* const* x, int n,
                            float (*out)[8]) {
  constexpr int kBlocksPerSegment = 16, kActivations = Engine::kActivations;
  constexpr size_t kBytes = sizeof(typename T::Block);
  const int count = kOne ? 1 : n;
  TileSums<kOne ? 1 : kDotTile> sums;
  sums.clear(count);
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    int8x16_t s[16];
    Floats8 m;
    const Floats8 d = T::template load<typename Engine::Layout>(rows, s, m);
    rows.advance(kBytes);
    for (int t = 0; t < count; t += kActivations) {
      const Codes32* blocks_of_x[kActivations];
      const int8_t* codes[kActivations];
      for (int a = 0; a < kActivations; ++a) {
        blocks_of_x[a] = reinterpret_cast<const Codes32*>(row_or_last(x, t + a, count)) + b;
        codes[a] = blocks_of_x[a]->codes;
      }
      const auto dots = Engine::template dots<32>(s, codes);
      for (int a = 0; a < kActivations && t + a < count; ++a) {
        const float scale = blocks_of_x[a]->scale;
        Floats8 term = scaled(d, scale, Engine::row_sums(dots, a));
        if constexpr (kHasMinimum<typename T::Block>) {
          const int32x4_t sum = vdupq_n_s32(blocks_of_x[a]->sum);
          term = term + scaled(m, scale, {sum, sum});
        }
        sums.segment[t + a] = sums.segment[t + a] + term;
      }
    }
    if ((b + 1) % kBlocksPerSegment == 0 || b + 1 == blocks) sums.end_segment(count);
  }
  sums.store(count, out);
}

/// One: the engine for one activation row, Many: for more.
template <typename T, typename One, typename Many, DotFn DotTable::*kPortable>
void dot32(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 32;
  for_panels(w, first, last, out, n, [&](const Rows8& rows, const std::byte* ahead, float(*sums)[8]) {
    if (n == 1) {
      panel32<T, One, true>(rows, blocks, ahead, x, n, sums);
    } else {
      panel32<T, Many, false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

}  // namespace moetier::neon
