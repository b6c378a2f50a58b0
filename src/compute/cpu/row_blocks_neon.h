// Super-blocks of one row as integers with NEON, for the types below four bits and their relatives: what
// quant/unpack.h says, faster. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_neon.h"
#include "quant/grids.h"
#include "quant/low_bit_blocks.h"
#include "quant/unpack.h"

namespace moetier::neon {

template <typename Block>
MOETIER_INLINE const uint8_t* bytes_at(const Block& b, size_t offset) {
  return reinterpret_cast<const uint8_t*>(&b) + offset;
}
MOETIER_INLINE float half_to_float(uint16_t half) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
MOETIER_INLINE void store(int8_t* to, uint8x16_t v) {
  vst1q_s8(to, vreinterpretq_s8_u8(v));
}

// --- scales ---

/// The 16 nibbles of eight bytes, low ones first.
MOETIER_INLINE uint8x16_t nibbles(uint8x8_t v) {
  const uint8x8_t low = vand_u8(v, vdup_n_u8(15)), high = vshr_n_u8(v, 4);
  return vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
}
/// 2 x + 1.
MOETIER_INLINE uint8x16_t odd(uint8x16_t v) {
  return vaddq_u8(vaddq_u8(v, v), vdupq_n_u8(1));
}
/// Eight bytes, each twice.
MOETIER_INLINE uint8x16_t doubled(uint8x8_t v) {
  return vcombine_u8(vzip1_u8(v, v), vzip2_u8(v, v));
}

/// Eight groups' words of four 7-bit signs and a scale.
struct SignWords {
  uint8_t signs[32];  ///< of each octet
  uint8x16_t scales;

  MOETIER_INLINE explicit SignWords(const uint32x4_t words[2]) {
    const uint8x8_t top =
        vmovn_u16(vshrq_n_u16(vcombine_u16(vshrn_n_u32(words[0], 16), vshrn_n_u32(words[1], 16)), 12));
    scales = odd(doubled(top));
    for (int h = 0; h < 2; ++h) {
      const uint32x4_t w = words[h];
      uint32x4_t seven = vandq_u32(w, vdupq_n_u32(0x7f));
      seven = vorrq_u32(seven, vandq_u32(vshlq_n_u32(w, 1), vdupq_n_u32(0x7f00)));
      seven = vorrq_u32(seven, vandq_u32(vshlq_n_u32(w, 2), vdupq_n_u32(0x7f0000)));
      seven = vorrq_u32(seven, vandq_u32(vshlq_n_u32(w, 3), vdupq_n_u32(0x7f000000)));
      vst1q_u8(signs + 16 * h, with_parity16(vreinterpretq_u8_u32(seven)));
    }
  }
  /// Bit 7 is set where the number of ones is odd.
  MOETIER_INLINE static uint8x16_t with_parity16(uint8x16_t seven) {
    return vorrq_u8(seven, vshlq_n_u8(vcntq_u8(seven), 7));
  }
};

// --- codes ---

/// 16 magnitudes, those of two octets, with their signs.
MOETIER_INLINE void put_signed(uint8x16_t magnitudes, uint8_t first, uint8_t second, int8_t* q) {
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const uint8x16_t mask = vtstq_u8(vcombine_u8(vdup_n_u8(first), vdup_n_u8(second)), bits);
  store(q, vsubq_u8(veorq_u8(magnitudes, mask), mask));
}
MOETIER_INLINE uint8x16_t two_rows(uint64_t first, uint64_t second) {
  return vcombine_u8(vcreate_u8(first), vcreate_u8(second));
}
MOETIER_INLINE uint8x16_t four_rows(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return two_rows(a | uint64_t{b} << 32, c | uint64_t{d} << 32);
}

/// Two bits of 16 weights, from bit kBit on.
template <int kBit>
MOETIER_INLINE uint8x16_t two_bits(uint8x16_t v) {
  if constexpr (kBit == 6) return vshrq_n_u8(v, 6);
  if constexpr (kBit == 0) return vandq_u8(v, vdupq_n_u8(3));
  return vandq_u8(vshlq_u8(v, vdupq_n_s8(-kBit)), vdupq_n_u8(3));
}
/// put(16 codes, i): the codes of planes, those of weights i to i + 15.
template <typename Put>
MOETIER_INLINE void for_planes(const uint8_t* qs, Put put) {
  for (int h = 0; h < 2; ++h) {
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t v = vld1q_u8(qs + 32 * h + 16 * half);
      const int at = 128 * h + 16 * half;
      put(two_bits<0>(v), at);
      put(two_bits<2>(v), at + 32);
      put(two_bits<4>(v), at + 64);
      put(two_bits<6>(v), at + 96);
    }
  }
}

MOETIER_INLINE void unpack_row(const BlockQ2_K& b, const Grids&, Unpacked256& out) {
  out.d = half_to_float(b.d);
  out.dmin = half_to_float(b.dmin);
  const uint8x16_t both = vld1q_u8(b.scales);
  store(out.scales, vandq_u8(both, vdupq_n_u8(15)));
  vst1q_u8(out.mins, vshrq_n_u8(both, 4));
  for_planes(b.qs, [&](uint8x16_t codes, int i) { store(out.q + i, codes); });
}

MOETIER_INLINE void unpack_row(const BlockQ3_K& b, const Grids&, Unpacked256& out) {
  out.d = half_to_float(b.d);
  uint8_t scales[16];
  unpack_q3_scales(b.scales, scales);
  store(out.scales, vsubq_u8(vld1q_u8(scales), vdupq_n_u8(32)));
  for_planes(b.qs, [&](uint8x16_t codes, int i) {
    const uint8x16_t high = vld1q_u8(b.hmask + i % 32), bit = vdupq_n_u8(static_cast<uint8_t>(1 << (i / 32)));
    store(out.q + i, vsubq_u8(codes, vbicq_u8(vdupq_n_u8(4), vtstq_u8(high, bit))));
  });
}

MOETIER_INLINE void unpack_row(const BlockTQ2_0& b, const Grids&, Unpacked256& out) {
  out.d = half_to_float(b.d);
  store(out.scales, vdupq_n_u8(1));
  for_planes(b.qs, [&](uint8x16_t codes, int i) { store(out.q + i, vsubq_u8(codes, vdupq_n_u8(1))); });
}

/// Digits of 16 bytes, less 1: the first of the base-3 fraction.
MOETIER_INLINE uint8x16_t first_digits(uint8x16_t fraction) {
  const uint8x16_t one = vcgeq_u8(fraction, vdupq_n_u8(86)), two = vcgeq_u8(fraction, vdupq_n_u8(171));
  return vsubq_u8(vsubq_u8(vdupq_n_u8(255), one), two);
}
MOETIER_INLINE void unpack_row(const BlockTQ1_0& b, const Grids&, Unpacked256& out) {
  out.d = half_to_float(b.d);
  store(out.scales, vdupq_n_u8(1));
  const uint8x16_t three = vdupq_n_u8(3);
  uint8x16_t v[3] = {vld1q_u8(b.qs), vld1q_u8(b.qs + 16), vld1q_u8(b.qs + 32)};
  for (int n = 0; n < 5; ++n) {
    store(out.q + 32 * n, first_digits(v[0]));
    store(out.q + 32 * n + 16, first_digits(v[1]));
    store(out.q + 160 + 16 * n, first_digits(v[2]));
    for (uint8x16_t& x : v) x = vmulq_u8(x, three);
  }
  uint32_t last;
  std::memcpy(&last, b.qh, sizeof(last));
  const uint8x16_t powers = vreinterpretq_u8_u32(uint32x4_t{0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b});
  store(out.q + 240, first_digits(vmulq_u8(vreinterpretq_u8_u32(vdupq_n_u32(last)), powers)));
}

MOETIER_INLINE void unpack_row(const BlockIQ4_XS& b, const Grids&, Unpacked256& out) {
  out.d = half_to_float(b.d);
  const uint32_t high = b.scales_high;
  for (int s = 0; s < 8; ++s) {
    const uint32_t low = b.scales_low[s / 2] >> (4 * (s % 2)) & 15u;
    const int scale = static_cast<int>(low | (high >> (2 * s) & 3u) << 4) - 32;
    out.scales[2 * s] = out.scales[2 * s + 1] = static_cast<int8_t>(scale);
  }
  const int8x16_t values = vld1q_s8(kIq4Values.data());
  for (int s = 0; s < 8; ++s) {
    const uint8x16_t v = vld1q_u8(b.qs + 16 * s);
    vst1q_s8(out.q + 32 * s, vqtbl1q_s8(values, vandq_u8(v, vdupq_n_u8(15))));
    vst1q_s8(out.q + 32 * s + 16, vqtbl1q_s8(values, vshrq_n_u8(v, 4)));
  }
}

MOETIER_INLINE void unpack_row(const BlockIQ2_XXS& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d) * 0.125f;
  // Index and sign words take turns.
  const uint8_t* groups = bytes_at(b, offsetof(BlockIQ2_XXS, groups));
  uint32x4_t words[2];
  for (int h = 0; h < 2; ++h) {
    const uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(groups + 32 * h));
    words[h] = vuzp2q_u32(a, vreinterpretq_u32_u8(vld1q_u8(groups + 32 * h + 16)));
  }
  const SignWords w(words);
  vst1q_s8(out.scales, vreinterpretq_s8_u8(w.scales));
  for (int n = 0; n < 32; n += 2) {
    const uint8_t* index = b.groups[n / 4].index + n % 4;
    put_signed(two_rows(g.iq2_xxs[index[0]], g.iq2_xxs[index[1]]), w.signs[n], w.signs[n + 1], out.q + 8 * n);
  }
}

MOETIER_INLINE void unpack_row(const BlockIQ2_XS& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d) * 0.125f;
  store(out.scales, odd(nibbles(vld1_u8(b.scales))));
  const uint8_t* qs = bytes_at(b, offsetof(BlockIQ2_XS, qs));
  uint8_t signs[32];
  uint16_t rows[32];
  for (int h = 0; h < 2; ++h) {
    const uint16x8_t first = vreinterpretq_u16_u8(vld1q_u8(qs + 32 * h));
    const uint16x8_t second = vreinterpretq_u16_u8(vld1q_u8(qs + 32 * h + 16));
    const uint8x16_t seven = vcombine_u8(vmovn_u16(vshrq_n_u16(first, 9)), vmovn_u16(vshrq_n_u16(second, 9)));
    vst1q_u8(signs + 16 * h, SignWords::with_parity16(seven));
    vst1q_u16(rows + 16 * h, vandq_u16(first, vdupq_n_u16(511)));
    vst1q_u16(rows + 16 * h + 8, vandq_u16(second, vdupq_n_u16(511)));
  }
  for (int n = 0; n < 32; n += 2) {
    put_signed(two_rows(g.iq2_xs[rows[n]], g.iq2_xs[rows[n + 1]]), signs[n], signs[n + 1], out.q + 8 * n);
  }
}

MOETIER_INLINE void unpack_row(const BlockIQ2_S& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d) * 0.125f;
  store(out.scales, odd(nibbles(vld1_u8(b.scales))));
  for (int n = 0; n < 32; n += 2) {
    const uint32_t high = static_cast<uint32_t>(b.high[n / 4]) >> (2 * (n % 4));
    const uint32_t first = b.index[n] | (high & 3) << 8, second = b.index[n + 1] | (high >> 2 & 3) << 8;
    put_signed(two_rows(g.iq2_s[first], g.iq2_s[second]), b.signs[n], b.signs[n + 1], out.q + 8 * n);
  }
}

MOETIER_INLINE void unpack_row(const BlockIQ3_XXS& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d) * 0.25f;
  const uint8_t* signs = bytes_at(b, offsetof(BlockIQ3_XXS, signs));
  const uint32x4_t words[2] = {vreinterpretq_u32_u8(vld1q_u8(signs)), vreinterpretq_u32_u8(vld1q_u8(signs + 16))};
  const SignWords w(words);
  vst1q_s8(out.scales, vreinterpretq_s8_u8(w.scales));
  for (int n = 0; n < 32; n += 2) {
    const uint8_t* i = b.index + 2 * n;
    const uint8x16_t rows = four_rows(g.iq3_xxs[i[0]], g.iq3_xxs[i[1]], g.iq3_xxs[i[2]], g.iq3_xxs[i[3]]);
    put_signed(rows, w.signs[n], w.signs[n + 1], out.q + 8 * n);
  }
}

MOETIER_INLINE void unpack_row(const BlockIQ3_S& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d);
  uint32_t scales;
  std::memcpy(&scales, b.scales, sizeof(scales));
  store(out.scales, odd(doubled(vget_low_u8(nibbles(vcreate_u8(scales))))));
  for (int n = 0; n < 32; n += 2) {
    const uint32_t high = static_cast<uint32_t>(b.high[n / 4]) >> (2 * (n % 4));
    const auto row = [&](uint32_t t) {
      return g.iq3_s[b.index[static_cast<uint32_t>(2 * n) + t] | (high >> t & 1) << 8];
    };
    put_signed(four_rows(row(0), row(1), row(2), row(3)), b.signs[n], b.signs[n + 1], out.q + 8 * n);
  }
}

/// Rows with 8 (g + 1) as 8 g +- 1.
MOETIER_INLINE void put_shifted(uint8x16_t rows, bool first_down, bool second_down, int8_t* q) {
  const auto less = [](bool down) { return vdup_n_u8(down ? 9 : 7); };
  store(q, vsubq_u8(rows, vcombine_u8(less(first_down), less(second_down))));
}
MOETIER_INLINE void unpack_row(const BlockIQ1_S& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(b.d) * 0.125f;
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = b.high[s];
    out.scales[2 * s] = out.scales[2 * s + 1] = static_cast<int8_t>((word >> 11 & 14) | 1);
    const auto row = [&](int l) { return g.iq1[b.index[4 * s + l] | (word >> (3 * l) & 7) << 8]; };
    const bool down = word >> 15 != 0;
    put_shifted(two_rows(row(0), row(1)), down, down, out.q + 32 * s);
    put_shifted(two_rows(row(2), row(3)), down, down, out.q + 32 * s + 16);
  }
}
MOETIER_INLINE void unpack_row(const BlockIQ1_M& b, const Grids& g, Unpacked256& out) {
  out.d = half_to_float(iq1_m_scale(b)) * 0.125f;
  for (int k = 0; k < 16; ++k) {
    const uint32_t three = static_cast<uint32_t>(b.scales[k / 4]) >> (3 * (k % 4)) & 7;
    out.scales[k] = static_cast<int8_t>(2 * three + 1);
    const uint32_t high = b.high[k];
    const uint64_t first = g.iq1[b.index[2 * k] | (high & 7) << 8];
    const uint64_t second = g.iq1[b.index[2 * k + 1] | (high >> 4 & 7) << 8];
    put_shifted(two_rows(first, second), (high & 8) != 0, (high & 128) != 0, out.q + 16 * k);
  }
}

}  // namespace moetier::neon
