// What the NEON dots share. Only for files named *_neon*.cpp.
//
// The scheme: eight weight rows (a panel) are taken together and decoded to signed bytes, 16 bytes of each row at a
// time, in one of two layouts:
//   Quads   a vector holds 4 neighbouring columns of four rows: sdot (or its replacement) multiplies them with 4
//           activation codes and leaves the four rows' sums side by side, with no horizontal addition;
//   Pairs   a vector holds 8 neighbouring columns of two rows: smmla multiplies them with 8 codes of two activation
//           rows.
// The integer sums are exact, so their order is free; the float sums of eight rows go on as two vectors, each row's in
// the order that docs/numbers.md gives. A decoded block serves all activation rows of the tile.
//
// Three tables have these loops, each in a file compiled for what it needs: base NEON, dotprod (sdot), i8mm (smmla, and
// sdot for one activation row). The files share no function that is not inlined: the loops are templates over engines.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "compute/cpu/dot.h"
#include "compute/cpu/math_neon.h"

namespace moetier::neon {

/// Eight rows of a matrix, at some block.
struct Rows8 {
  const std::byte* first;
  size_t stride;

  MOETIER_INLINE void advance(size_t bytes) { first += bytes; }
  MOETIER_INLINE const uint8_t* at(int row, size_t offset) const {
    return reinterpret_cast<const uint8_t*>(first) + static_cast<size_t>(row) * stride + offset;
  }
};

/// The 16-bit words at `offset`, of all eight rows.
MOETIER_INLINE uint16x8_t gather16(const Rows8& rows, size_t offset) {
  uint16_t words[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&words[r], rows.at(r, offset), sizeof(words[r]));
  return vld1q_u16(words);
}

/// The dwords at `offset`: v[0] of rows 0-3, v[1] of rows 4-7.
MOETIER_INLINE void gather32(const Rows8& rows, size_t offset, uint32x4_t v[2]) {
  uint32_t dwords[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&dwords[r], rows.at(r, offset), sizeof(dwords[r]));
  v[0] = vld1q_u32(dwords);
  v[1] = vld1q_u32(dwords + 4);
}

/// One float of each of the eight rows.
struct Floats8 {
  float32x4_t low, high;  ///< rows 0-3, rows 4-7
};

MOETIER_INLINE Floats8 operator+(const Floats8& a, const Floats8& b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
MOETIER_INLINE Floats8 operator-(const Floats8& a, const Floats8& b) {
  return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
MOETIER_INLINE Floats8 zero8() {
  return {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
}
MOETIER_INLINE Floats8 halves_to_floats(uint16x8_t halves) {
  const float16x8_t h = vreinterpretq_f16_u16(halves);
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
/// The low (or high) halves of the rows' dwords.
MOETIER_INLINE Floats8 low_halves_to_floats(const uint32x4_t v[2]) {
  return halves_to_floats(vcombine_u16(vmovn_u32(v[0]), vmovn_u32(v[1])));
}
MOETIER_INLINE Floats8 high_halves_to_floats(const uint32x4_t v[2]) {
  return halves_to_floats(vcombine_u16(vshrn_n_u32(v[0], 16), vshrn_n_u32(v[1], 16)));
}

/// One integer sum of each of the eight rows.
struct Ints8 {
  int32x4_t low, high;
};

/// flush(d * a) * float(sum).
MOETIER_INLINE Floats8 scaled(const Floats8& d, float a, const Ints8& sum) {
  const auto four = [a](float32x4_t scale, int32x4_t integers) {
    return vmulq_f32(num::flush4(vmulq_n_f32(scale, a)), vcvtq_f32_s32(integers));
  };
  return {four(d.low, sum.low), four(d.high, sum.high)};
}

// --- layouts ---
//
// load16(): the 16 bytes at `offset` of all eight rows as eight vectors, in ascending columns. bit_masks(): 16 vectors
// for 32 columns, all ones where bit c of a row's dword is set for column c.

struct Quads {
  /// v[2j + h]: columns 4j to 4j + 3 of rows 4h to 4h + 3.
  MOETIER_INLINE static void load16(const Rows8& rows, size_t offset, uint8x16_t v[8]) {
    for (int h = 0; h < 2; ++h) {
      const auto row = [&](int i) { return vreinterpretq_u32_u8(vld1q_u8(rows.at(4 * h + i, offset))); };
      const uint32x4_t a = row(0), b = row(1), c = row(2), d = row(3);
      const auto join = [&](int j, uint32x4_t ab, uint32x4_t cd) {
        const uint64x2_t x = vreinterpretq_u64_u32(ab), y = vreinterpretq_u64_u32(cd);
        v[2 * j + h] = vreinterpretq_u8_u64(vtrn1q_u64(x, y));
        v[2 * j + 4 + h] = vreinterpretq_u8_u64(vtrn2q_u64(x, y));
      };
      join(0, vtrn1q_u32(a, b), vtrn1q_u32(c, d));
      join(1, vtrn2q_u32(a, b), vtrn2q_u32(c, d));
    }
  }

  MOETIER_INLINE static void bit_masks(const uint32x4_t bits[2], uint8x16_t masks[16]) {
    static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t patterns[2] = {vreinterpretq_u8_u32(vdupq_n_u32(0x08040201u)),
                                    vreinterpretq_u8_u32(vdupq_n_u32(0x80402010u))};
    for (int j = 0; j < 8; ++j) {
      const uint8x16_t index = vaddq_u8(vld1q_u8(kByte), vdupq_n_u8(static_cast<uint8_t>(j / 2)));
      for (int h = 0; h < 2; ++h) {
        masks[2 * j + h] = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(bits[h]), index), patterns[j % 2]);
      }
    }
  }
};

struct Pairs {
  /// v[4s + p]: columns 8s to 8s + 7 of rows 2p and 2p + 1.
  MOETIER_INLINE static void load16(const Rows8& rows, size_t offset, uint8x16_t v[8]) {
    for (int p = 0; p < 4; ++p) {
      const uint64x2_t a = vreinterpretq_u64_u8(vld1q_u8(rows.at(2 * p, offset)));
      const uint64x2_t b = vreinterpretq_u64_u8(vld1q_u8(rows.at(2 * p + 1, offset)));
      v[p] = vreinterpretq_u8_u64(vtrn1q_u64(a, b));
      v[4 + p] = vreinterpretq_u8_u64(vtrn2q_u64(a, b));
    }
  }

  MOETIER_INLINE static void bit_masks(const uint32x4_t bits[2], uint8x16_t masks[16]) {
    static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
    const uint8x16_t pattern = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    for (int s = 0; s < 4; ++s) {
      for (int p = 0; p < 4; ++p) {
        const uint8x16_t index = vaddq_u8(vld1q_u8(kByte), vdupq_n_u8(static_cast<uint8_t>(8 * (p % 2) + s)));
        masks[4 * s + p] = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(bits[p / 2]), index), pattern);
      }
    }
  }
};

// --- engines ---
//
// An engine multiplies decoded vectors of its Layout with kActivations rows of codes. Its Sums are the integer sums of
// eight weight rows for these activation rows, in an order of its own: spread() brings one integer per weight row into
// that order, row_sums() takes an activation row's sums out of it.

template <int kActivationRows>
struct IntSums {
  int32x4_t v[2 * kActivationRows];

  MOETIER_INLINE void clear() {
    for (int32x4_t& x : v) x = vdupq_n_s32(0);
  }
  /// Adds other * factor.
  MOETIER_INLINE void add_scaled(const IntSums& other, const IntSums& factor) {
    for (int i = 0; i < 2 * kActivationRows; ++i) v[i] = vmlaq_s32(v[i], other.v[i], factor.v[i]);
  }
};

/// One activation row; v[h]: rows 4h to 4h + 3.
struct QuadSums : Quads {
  using Layout = Quads;
  static constexpr int kActivations = 1;
  using Sums = IntSums<1>;

  MOETIER_INLINE static Sums spread(const Ints8& rows) { return {{rows.low, rows.high}}; }
  MOETIER_INLINE static Ints8 row_sums(const Sums& sums, int) { return {sums.v[0], sums.v[1]}; }
};

/// For every ARM processor of 64 bits.
struct WideningProducts : QuadSums {
  /// The dots of kColumns columns. Two products of magnitude up to 128 * 127 fit in int16.
  template <int kColumns>
  MOETIER_INLINE static Sums dots(const int8x16_t* u, const int8_t* const* codes) {
    Sums out;
    for (int h = 0; h < 2; ++h) {
      int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
      for (int j = 0; j < kColumns / 4; j += 2) {
        const int8x16_t x0 = broadcast4(codes[0] + 4 * j), x1 = broadcast4(codes[0] + 4 * j + 4);
        const int8x16_t u0 = u[2 * j + h], u1 = u[2 * j + 2 + h];
        const int16x8_t p = vmlal_s8(vmull_s8(vget_low_s8(u0), vget_low_s8(x0)), vget_low_s8(u1), vget_low_s8(x1));
        const int16x8_t q = vmlal_high_s8(vmull_high_s8(u0, x0), u1, x1);
        low = vpadalq_s16(low, p);
        high = vpadalq_s16(high, q);
      }
      out.v[h] = vpaddq_s32(low, high);
    }
    return out;
  }

 private:
  MOETIER_INLINE static int8x16_t broadcast4(const int8_t* codes) {
    int32_t four;
    std::memcpy(&four, codes, sizeof(four));
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
};

#if defined(__ARM_FEATURE_DOTPROD)
struct DotProducts : QuadSums {
  template <int kColumns>
  MOETIER_INLINE static Sums dots(const int8x16_t* u, const int8_t* const* codes) {
    Sums out;
    out.clear();
    for (int c = 0; c < kColumns; c += 16) {
      const int8x16_t x = vld1q_s8(codes[0] + c);
      for (int h = 0; h < 2; ++h) {
        const int8x16_t* v = u + c / 2 + h;
        out.v[h] = vdotq_laneq_s32(out.v[h], v[0], x, 0);
        out.v[h] = vdotq_laneq_s32(out.v[h], v[2], x, 1);
        out.v[h] = vdotq_laneq_s32(out.v[h], v[4], x, 2);
        out.v[h] = vdotq_laneq_s32(out.v[h], v[6], x, 3);
      }
    }
    return out;
  }
};
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
/// Two activation rows x, y; v[p]: row 2p with x, with y, row 2p + 1 with x, with y.
struct MatrixProducts : Pairs {
  using Layout = Pairs;
  static constexpr int kActivations = 2;
  using Sums = IntSums<2>;

  template <int kColumns>
  MOETIER_INLINE static Sums dots(const int8x16_t* u, const int8_t* const* codes) {
    Sums out;
    out.clear();
    for (int c = 0; c < kColumns; c += 16) {
      const int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(codes[0] + c));
      const int64x2_t y = vreinterpretq_s64_s8(vld1q_s8(codes[1] + c));
      const int8x16_t low = vreinterpretq_s8_s64(vtrn1q_s64(x, y)), high = vreinterpretq_s8_s64(vtrn2q_s64(x, y));
      for (int p = 0; p < 4; ++p) {
        out.v[p] = vmmlaq_s32(out.v[p], u[c / 2 + p], low);
        out.v[p] = vmmlaq_s32(out.v[p], u[c / 2 + 4 + p], high);
      }
    }
    return out;
  }

  MOETIER_INLINE static Sums spread(const Ints8& rows) {
    return {{vzip1q_s32(rows.low, rows.low), vzip2q_s32(rows.low, rows.low), vzip1q_s32(rows.high, rows.high),
             vzip2q_s32(rows.high, rows.high)}};
  }
  MOETIER_INLINE static Ints8 row_sums(const Sums& sums, int activation) {
    if (activation == 0) return {vuzp1q_s32(sums.v[0], sums.v[1]), vuzp1q_s32(sums.v[2], sums.v[3])};
    return {vuzp2q_s32(sums.v[0], sums.v[1]), vuzp2q_s32(sums.v[2], sums.v[3])};
  }
};
#endif

// --- the loop over panels ---

/// Fetches the cache lines of `bytes` at `from`.
MOETIER_INLINE void prefetch(const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

/// Calls panel(rows, ahead, sums) for panels of eight rows and hands out the sums. `ahead` is where the next panel
/// begins: weights are read once, so a panel fetches the next one into the cache while it runs.
template <typename Panel>
MOETIER_INLINE void for_panels(const WeightMatrix& w, int64_t first, int64_t last, float* const* out, int n,
                               Panel panel) {
  float sums[kDotTile][8];
  for (int64_t r = first; r < last; r += 8) {
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + 8 <= w.rows ? r : w.rows - 8;
    const std::byte* data = w.data + static_cast<size_t>(base) * w.row_bytes;
    const std::byte* ahead = r + 16 <= w.rows ? data + 8 * w.row_bytes : data;
    panel(Rows8{data, w.row_bytes}, ahead, sums);
    const auto count = static_cast<size_t>((r + 8 <= last ? r + 8 : last) - r);
    for (int t = 0; t < n; ++t) std::memcpy(out[t] + (r - first), sums[t] + (r - base), count * sizeof(float));
  }
}

/// Activation row t of a tile of n; the row before it where there is none (its result is not used).
MOETIER_INLINE const std::byte* row_or_last(const std::byte* const* x, int t, int n) {
  return x[t < n ? t : n - 1];
}

/// The float sums of a tile: kRows activation rows of eight weight rows.
template <int kRows>
struct TileSums {
  Floats8 total[kRows], segment[kRows];

  MOETIER_INLINE void clear(int n) {
    for (int t = 0; t < n; ++t) total[t] = segment[t] = zero8();
  }
  MOETIER_INLINE void end_segment(int n) {
    for (int t = 0; t < n; ++t) {
      total[t] = total[t] + segment[t];
      segment[t] = zero8();
    }
  }
  MOETIER_INLINE void store(int n, float (*out)[8]) const {
    for (int t = 0; t < n; ++t) {
      vst1q_f32(out[t], total[t].low);
      vst1q_f32(out[t] + 4, total[t].high);
    }
  }
};

/// The table's functions of float types (dot_float_neon.cpp).
extern const DotFn kDotF32, kDotF16, kDotBF16;

}  // namespace moetier::neon
