// How the types below four bits lie in memory, and their relatives: Q2_K, Q3_K, the IQ types, ternary ones and NVFP4.
// As in blocks.h, all is little-endian and packed.
//
// Words used below, for weight i of a super-block: its half h = i / 128, plane p = i mod 128 / 32 and place l = i mod
// 32; its group s = i / 32 and octet n = i / 8. "7-bit signs": bit j set = weight j of the octet is negative, and bit 7
// (weight 7) is the parity of the others. Every formula is exact in float32 save the difference in Q2_K.
#pragma once

#include "quant/blocks.h"

namespace moetier {

#define MOETIER_BLOCK struct [[gnu::packed, gnu::may_alias]]

/// y = (d * scale_k) * q - (dmin * min_k), k = i / 16, q 0..3 at bit 2p of qs[32h + l].
MOETIER_BLOCK BlockQ2_K {
  uint8_t scales[16];  ///< low nibble the scale, high nibble the min
  uint8_t qs[64];
  uint16_t d, dmin;  ///< f16
};
static_assert(sizeof(BlockQ2_K) == 84);

/// y = (d * (scale_k - 32)) * q, k = i / 16; q = two bits at bit 2p of qs[32h + l], less 4 unless bit s of hmask[l].
MOETIER_BLOCK BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];  ///< 16 scales of 6 bits: unpack_q3_scales()
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

/// y = d * (0.5 + scale_s) / 4 * grid, signs applied; 256 rows of 8.
MOETIER_BLOCK BlockIQ2_XXS {
  uint16_t d;
  struct [[gnu::packed]] {
    uint8_t index[4];  ///< of the group's four octets
    uint32_t signs;    ///< 7-bit signs of octet l at bit 7l; the top four bits are the scale
  } groups[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

/// As IQ2_XXS; 512 rows of 8.
MOETIER_BLOCK BlockIQ2_XS {
  uint16_t d;
  uint16_t qs[32];    ///< per octet: low 9 bits the row, upper 7 the signs
  uint8_t scales[8];  ///< of 16 weights each: nibbles, low first
};
static_assert(sizeof(BlockIQ2_XS) == 74);

/// As IQ2_XXS; 1024 rows of 8.
MOETIER_BLOCK BlockIQ2_S {
  uint16_t d;
  uint8_t index[32];  ///< low 8 bits
  uint8_t signs[32];  ///< all 8 signs of an octet
  uint8_t high[8];    ///< octet n's upper two bits at bit 2(n mod 4) of byte n / 4
  uint8_t scales[8];  ///< as IQ2_XS
};
static_assert(sizeof(BlockIQ2_S) == 82);

/// y = d * (0.5 + scale_s) / 2 * grid, signs applied; 256 rows of 4.
MOETIER_BLOCK BlockIQ3_XXS {
  uint16_t d;
  uint8_t index[64];  ///< of four weights each
  uint32_t signs[8];  ///< per group, as in IQ2_XXS
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

/// y = d * (1 + 2 * scale_s) * grid, signs applied; 512 rows of 4.
MOETIER_BLOCK BlockIQ3_S {
  uint16_t d;
  uint8_t index[64];  ///< low 8 bits
  uint8_t high[8];    ///< bit t: the ninth bit of the group's index t
  uint8_t signs[32];  ///< all 8 signs of an octet
  uint8_t scales[4];  ///< nibbles, low first
};
static_assert(sizeof(BlockIQ3_S) == 110);

/// y = d * (2 * scale_s + 1) * (grid + shift), shift +1/8 or -1/8; 2048 rows of 8.
MOETIER_BLOCK BlockIQ1_S {
  uint16_t d;
  uint8_t index[32];  ///< low 8 bits
  uint16_t high[8];   ///< octet l's upper three bits at bit 3l; bits 12-14 the scale; bit 15 set = shift -1/8
};
static_assert(sizeof(BlockIQ1_S) == 50);

/// As IQ1_S with a scale for each 16 weights and a shift for each octet.
MOETIER_BLOCK BlockIQ1_M {
  uint8_t index[32];
  uint8_t high[16];    ///< a nibble per octet, low first: three upper bits, then bit 3 set = shift -1/8
  uint16_t scales[4];  ///< three bits per 16 weights; the top nibbles together are the f16 d, least significant first
};
static_assert(sizeof(BlockIQ1_M) == 56);

/// y = (d * (scale_s - 32)) * kIq4Values[q]; codes in order A.
MOETIER_BLOCK BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_high;   ///< upper two bits of scale s at bit 2s
  uint8_t scales_low[4];  ///< nibbles, low first
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

/// y = (digit - 1) * d; bytes hold five digits of base 3 as a fixed-point fraction: trit().
MOETIER_BLOCK BlockTQ1_0 {
  uint8_t qs[48];  ///< 32 bytes: digit n of byte m is weight 32n + m; then 16: weight 160 + 16n + m
  uint8_t qh[4];   ///< digit n (of four) of byte m is weight 240 + 4n + m
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

/// y = (q - 1) * d, q at bit 2p of qs[32h + l].
MOETIER_BLOCK BlockTQ2_0 {
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

/// 64 weights in four groups of 16: y = kFp4Values[q] * ue4m3_half(scales[g]). Byte j of a group's eight holds weight j
/// in its low nibble and weight j + 8 in its high one.
MOETIER_BLOCK BlockNVFP4 {
  uint8_t scales[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

#undef MOETIER_BLOCK

/// Weights in a block of NVFP4.
inline constexpr int kBlock64 = 64;

/// Digit n (0..4) of a TQ1_0 byte: 0, 1 or 2.
inline int trit(uint8_t byte, int n) {
  constexpr std::array<uint8_t, 5> kPowers{1, 3, 9, 27, 81};
  const auto fraction = static_cast<uint8_t>(byte * kPowers[static_cast<size_t>(n)]);
  return fraction * 3 >> 8;
}

/// Half of what the unsigned E4M3 byte stands for, to go with the doubled kFp4Values: bit 7 does not count, 0 and 0x7f
/// give 0.
inline float ue4m3_half(uint8_t s) {
  const int exponent = s >> 3 & 15, mantissa = s & 7;
  if ((s & 0x7f) == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 119) << 23 | static_cast<uint32_t>(mantissa) << 20);
}

/// The sixteen 6-bit scales of Q3_K, 0..63.
inline void unpack_q3_scales(const uint8_t* packed, uint8_t* scales) {
  for (int k = 0; k < 16; ++k) {
    const int low = packed[k % 8] >> (k < 8 ? 0 : 4) & 15;
    const int high = packed[8 + k % 4] >> (2 * (k / 4)) & 3;
    scales[k] = static_cast<uint8_t>(low | high << 4);
  }
}

/// The f16 that IQ1_M's scale words hold in their top nibbles.
inline uint16_t iq1_m_scale(const BlockIQ1_M& b) {
  return static_cast<uint16_t>(b.scales[0] >> 12 | (b.scales[1] >> 8 & 0x00f0) | (b.scales[2] >> 4 & 0x0f00) |
                               (b.scales[3] & 0xf000));
}

/// An octet's signs from the seven stored ones.
inline uint8_t with_parity(uint32_t seven) {
  uint32_t parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<uint8_t>(seven | (parity & 1) << 7);
}

}  // namespace moetier
