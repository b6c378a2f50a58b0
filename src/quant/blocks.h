// How the computable types lie in memory, block by block, and the small helpers that decoders and kernels share.
// Layouts are facts of the GGUF format: little-endian, no padding; blocks have odd sizes, so nothing may be assumed
// about their alignment.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moetier {

static_assert(std::endian::native == std::endian::little,
              "blocks are read in place, so the machine must be little-endian");

// packed: alignment 1. may_alias: they are laid over plain bytes.
#define MOETIER_BLOCK struct [[gnu::packed, gnu::may_alias]]

/// Codes of the 32-weight types: byte j holds weight j in its low nibble and weight j + 16 in its high nibble.
inline constexpr int kBlock32 = 32;
/// Weights in a super-block of the K types.
inline constexpr int kSuperBlock = 256;

/// y = (q - 8) * d, q 0..15.
MOETIER_BLOCK BlockQ4_0 {
  uint16_t d;      ///< f16
  uint8_t qs[16];  ///< nibbles
};
static_assert(sizeof(BlockQ4_0) == 18);

/// y = q * d + m, q 0..15.
MOETIER_BLOCK BlockQ4_1 {
  uint16_t d, m;  ///< f16
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

/// y = (q - 16) * d; q = nibble of weight j + 16 * (bit j of qh).
MOETIER_BLOCK BlockQ5_0 {
  uint16_t d;
  uint32_t qh;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// y = q * d + m; q as in Q5_0.
MOETIER_BLOCK BlockQ5_1 {
  uint16_t d, m;
  uint32_t qh;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

/// y = q * d.
MOETIER_BLOCK BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// y = d * kIq4Values[q].
MOETIER_BLOCK BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

/// y = kFp4Values[q] * e8m0_half(e).
MOETIER_BLOCK BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

/// Eight sub-blocks of 32, k = i / 32; y = (d * scale_k) * q - (dmin * min_k), q 0..15. Codes: 32 bytes for each pair
/// of sub-blocks, even k in the low nibbles, odd k in the high ones, byte i mod 32.
MOETIER_BLOCK BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];  ///< 8 scales and 8 mins of 6 bits: unpack_scales_mins()
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

/// As Q4_K with a fifth bit: bit k of qh[i mod 32].
MOETIER_BLOCK BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

/// y = (d * scales[i / 16]) * (q - 32), q 0..63. With h = i / 128, p = (i mod 128) / 32, l = i mod 32: the low four
/// bits are in ql[64h + 32(p mod 2) + l], the low nibble for p = 0, 1 and the high one for p = 2, 3; the upper two at
/// bit 2p of qh[32h + l].
MOETIER_BLOCK BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

#undef MOETIER_BLOCK

/// What IQ4_NL's codes stand for; not symmetric.
inline constexpr std::array<int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
/// Twice what FP4 (E2M1) codes stand for. Code 8 is zero, too.
inline constexpr std::array<int8_t, 16> kFp4Values{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// 2^(e - 128), exactly: half of what the E8M0 byte stands for, to go with the doubled kFp4Values. e = 0 and 1 give
/// subnormals; 255 is no special value.
inline float e8m0_half(uint8_t e) {
  const uint32_t bits = e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

/// The 6-bit scales and mins of a Q4_K or Q5_K super-block, 0..63, in order of the sub-blocks.
struct ScalesMins {
  uint8_t scales[8];
  uint8_t mins[8];
};

/// `packed`: the 12 bytes of a block's `scales`. Sub-blocks 0..3 have their six bits in bytes 0..3 (scale) and 4..7
/// (min); 4..7 have low nibbles in bytes 8..11 (scale low, min high) and their top two bits in the top bits of bytes
/// 0..3 (scale) and 4..7 (min).
inline ScalesMins unpack_scales_mins(const uint8_t* packed) {
  uint32_t w[3];
  std::memcpy(w, packed, sizeof(w));
  const uint32_t out[4] = {w[0] & 0x3f3f3f3fu, (w[2] & 0x0f0f0f0fu) | ((w[0] >> 2) & 0x30303030u), w[1] & 0x3f3f3f3fu,
                           ((w[2] >> 4) & 0x0f0f0f0fu) | ((w[1] >> 2) & 0x30303030u)};
  ScalesMins result;
  std::memcpy(&result, out, sizeof(result));
  return result;
}

/// The inverse; values above 63 are not allowed.
inline void pack_scales_mins(const ScalesMins& in, uint8_t* packed) {
  uint32_t w[4];
  std::memcpy(w, &in, sizeof(w));
  const uint32_t out[3] = {w[0] | ((w[1] & 0x30303030u) << 2), w[2] | ((w[3] & 0x30303030u) << 2),
                           (w[1] & 0x0f0f0f0fu) | ((w[3] & 0x0f0f0f0fu) << 4)};
  std::memcpy(packed, out, sizeof(out));
}

}  // namespace moetier
