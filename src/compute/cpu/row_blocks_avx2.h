// Super-blocks of one row as vectors of 32 codes, for the types below four bits and their relatives. Only for files
// named
// *_avx2.cpp, *_avxvnni.cpp and dot_vnni_avx512.cpp, which each have their own copy.
//
// Each class below is made from a block (and grids(), asked for once) and gives, for group s (weights 32 s to 32 s +
// 31):
//   codes<s>()   unsigned codes, or magnitudes where signs are apart
//   mask<s>()    (kind masked) -1 where the weight is negative
//   scales()     16 words, one for each 16 weights (not for ternary types, whose scales are 1)
// A weight is codes - kOffset (kind offset), +-codes (masked), or a signed value as it is (table). With kOffset it is
// from 0 to kLargest. The block's scale is kUnit times its f16.
#pragma once

#include "compute/cpu/dot_avx2.h"
#include "quant/grids.h"
#include "quant/low_bit_blocks.h"

namespace moetier::MOETIER_AVX2_UNIT {

enum class CodeKind : uint8_t { offset, masked, table };

MOETIER_KERNEL __m256i load256(const void* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
MOETIER_KERNEL __m128i load128(const void* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
MOETIER_KERNEL __m128i load64(const void* at) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
}
template <typename T>
MOETIER_KERNEL T load_as(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// v shifted right by kBits within words (left, if negative).
template <int kBits>
MOETIER_KERNEL __m256i shift_words(__m256i v) {
  if constexpr (kBits > 0) return _mm256_srli_epi16(v, kBits);
  if constexpr (kBits < 0) return _mm256_slli_epi16(v, -kBits);
  return v;
}

/// 2 x + 1 of words.
MOETIER_KERNEL __m256i odd_words(__m256i v) {
  return _mm256_or_si256(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
}
/// Eight dwords below 2^15 as 16 words, each twice.
MOETIER_KERNEL __m256i doubled_words(__m256i dwords) {
  return _mm256_or_si256(dwords, _mm256_slli_epi32(dwords, 16));
}
/// The 16 nibbles of eight bytes, low ones first, as words.
MOETIER_KERNEL __m256i nibble_words(const uint8_t* bytes) {
  const __m128i v = load64(bytes), mask = _mm_set1_epi8(15);
  return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi16(v, 4), mask)));
}

/// 32 bytes, one for each octet.
struct OctetBytes {
  __m256i half[2];  ///< 16 bytes each, in both lanes

  MOETIER_KERNEL explicit OctetBytes(const uint8_t* bytes)
      : half{_mm256_broadcastsi128_si256(load128(bytes)), _mm256_broadcastsi128_si256(load128(bytes + 16))} {}
  MOETIER_KERNEL explicit OctetBytes(__m256i v)
      : half{_mm256_permute4x64_epi64(v, 0x44), _mm256_permute4x64_epi64(v, 0xee)} {}

  /// The bytes of group s's four octets, eight times each.
  template <int s>
  MOETIER_KERNEL __m256i spread() const {
    constexpr char kAt = 4 * (s % 4);
    const __m256i pattern =
        _mm256_add_epi8(_mm256_set1_epi8(kAt), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                                                2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    return _mm256_shuffle_epi8(half[s / 4], pattern);
  }
  /// -1 where the weight's bit is set.
  template <int s>
  MOETIER_KERNEL __m256i bits() const {
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread<s>(), bit), bit);
  }
};
/// Bytes of seven bits with bit 7 set where their number of ones is odd.
MOETIER_KERNEL __m256i with_parity32(__m256i v) {
  const __m256i odd = _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,  //
                                       0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
  const __m256i parity =
      _mm256_xor_si256(_mm256_shuffle_epi8(odd, _mm256_and_si256(v, nibble)), _mm256_shuffle_epi8(odd, high));
  return _mm256_or_si256(v, parity);
}
/// The 7-bit signs of dwords (octet l at bit 7l) as bytes with parity.
MOETIER_KERNEL __m256i seven_bit_signs(__m256i dwords) {
  const auto byte = [](__m256i v, int l) { return _mm256_and_si256(v, _mm256_set1_epi32(0x7f << (8 * l))); };
  const __m256i low = _mm256_or_si256(byte(dwords, 0), byte(_mm256_slli_epi32(dwords, 1), 1));
  const __m256i high = _mm256_or_si256(byte(_mm256_slli_epi32(dwords, 2), 2), byte(_mm256_slli_epi32(dwords, 3), 3));
  return with_parity32(_mm256_or_si256(low, high));
}

/// Rows at `i` of a grid of 8, four of them. Broadcast loads and blends keep the one shuffle port free.
template <typename Index>
MOETIER_KERNEL __m256i four_rows(const uint64_t* grid, const Index* i) {
  const auto row = [&](int l) { return _mm256_set1_epi64x(static_cast<int64_t>(grid[i[l]])); };
  return _mm256_blend_epi32(_mm256_blend_epi32(row(0), row(1), 0x0c), _mm256_blend_epi32(row(2), row(3), 0xc0), 0xf0);
}
/// Rows of a grid of 4, eight of them.
template <typename Index>
MOETIER_KERNEL __m256i eight_rows(const uint32_t* grid, const Index* i) {
  const auto row = [&](int t) { return _mm256_set1_epi32(static_cast<int>(grid[i[t]])); };
  const __m256i low =
      _mm256_blend_epi32(_mm256_blend_epi32(row(0), row(1), 0x02), _mm256_blend_epi32(row(2), row(3), 0x08), 0x0c);
  const __m256i high =
      _mm256_blend_epi32(_mm256_blend_epi32(row(4), row(5), 0x20), _mm256_blend_epi32(row(6), row(7), 0x80), 0xc0);
  return _mm256_blend_epi32(low, high, 0xf0);
}

/// Each of eight 16-bit words four times, times 2^9, 2^6, 2^3, 1: field l at bit 3l of a word moves to bit 9.
MOETIER_KERNEL void three_bit_fields(__m128i words, __m256i out[2]) {
  const __m256i low = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3,  //
                                       4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
  const __m256i high = _mm256_add_epi8(low, _mm256_set1_epi8(8));
  const __m256i factors = _mm256_set1_epi64x(0x0001000800400200);
  const __m256i both = _mm256_broadcastsi128_si256(words);
  out[0] = _mm256_mullo_epi16(_mm256_shuffle_epi8(both, low), factors);
  out[1] = _mm256_mullo_epi16(_mm256_shuffle_epi8(both, high), factors);
}

// --- planes of two bits ---

/// Codes 0..3 in planes, as Q2_K, Q3_K and TQ2_0 have them.
struct Planes {
  __m256i half[2];

  MOETIER_KERNEL explicit Planes(const uint8_t* qs) : half{load256(qs), load256(qs + 32)} {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return _mm256_and_si256(shift_words<2 * (s % 4)>(half[s / 4]), _mm256_set1_epi8(3));
  }
};

struct RowQ2K {
  using Block = BlockQ2_K;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 0, kLargest = 3;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 1.0f;

  const Block& b;
  Planes planes;

  MOETIER_KERNEL RowQ2K(const Block& block, const Grids&) : b(block), planes(block.qs) {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return planes.codes<s>();
  }
  MOETIER_KERNEL __m256i scales() const {
    return _mm256_cvtepu8_epi16(_mm_and_si128(load128(b.scales), _mm_set1_epi8(15)));
  }
  MOETIER_KERNEL __m256i mins() const {
    return _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(load128(b.scales), 4), _mm_set1_epi8(15)));
  }
};

struct RowQ3K {
  using Block = BlockQ3_K;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 4, kLargest = 7;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 1.0f;

  const Block& b;
  Planes planes;
  __m256i high;

  MOETIER_KERNEL RowQ3K(const Block& block, const Grids&) : b(block), planes(block.qs), high(load256(block.hmask)) {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    const __m256i four = _mm256_and_si256(shift_words<s - 2>(high), _mm256_set1_epi8(4));
    return _mm256_or_si256(planes.codes<s>(), four);
  }
  MOETIER_KERNEL __m256i scales() const {
    constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f, kPairs = 0x0303030303030303;
    const auto low = load_as<uint64_t>(b.scales);
    uint64_t high_bits = load_as<uint32_t>(b.scales + 8);
    high_bits |= high_bits >> 2 << 32;
    const uint64_t first = (low & kNibbles) | (high_bits & kPairs) << 4;
    const uint64_t second = (low >> 4 & kNibbles) | (high_bits >> 4 & kPairs) << 4;
    const __m128i bytes = _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
    return _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
  }
};

struct RowTQ2 {
  using Block = BlockTQ2_0;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 1, kLargest = 3;  // 3 in broken files only
  static constexpr bool kScaled = false;
  static constexpr float kUnit = 1.0f;

  Planes planes;

  MOETIER_KERNEL RowTQ2(const Block& block, const Grids&) : planes(block.qs) {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return planes.codes<s>();
  }
};

struct RowTQ1 {
  using Block = BlockTQ1_0;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 1, kLargest = 2;
  static constexpr bool kScaled = false;
  static constexpr float kUnit = 1.0f;

  /// Bytes whose first digit is the code: the block's times powers of three.
  __m256i fraction[8];

  MOETIER_KERNEL RowTQ1(const Block& b, const Grids&) {
    fraction[0] = load256(b.qs);
    for (int s = 1; s < 5; ++s) fraction[s] = thrice(fraction[s - 1]);
    const __m256i even = _mm256_broadcastsi128_si256(load128(b.qs + 32));
    const __m256i two = _mm256_blend_epi32(even, thrice(even), 0xf0);  // times 1 and 3
    fraction[5] = two;
    fraction[6] = thrice(thrice(two));
    // The low half: times 81. The high half: the last four bytes times 1, 3, 9 and 27.
    const __m256i last = times(_mm256_set1_epi32(load_as<int>(b.qh)), _mm256_setr_epi16(0, 0, 0, 0, 0, 0, 0, 0,  //
                                                                                        1, 1, 3, 3, 9, 9, 27, 27));
    fraction[7] = _mm256_blend_epi32(thrice(thrice(fraction[6])), last, 0xf0);
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    const auto at_least = [this](uint8_t bound) {
      const __m256i b = _mm256_set1_epi8(static_cast<char>(bound));
      return _mm256_cmpeq_epi8(_mm256_max_epu8(fraction[s], b), fraction[s]);
    };
    return _mm256_abs_epi8(_mm256_add_epi8(at_least(86), at_least(171)));  // 256/3 and 512/3, rounded up
  }

 private:
  MOETIER_KERNEL static __m256i thrice(__m256i v) { return _mm256_add_epi8(v, _mm256_add_epi8(v, v)); }
  /// Bytes times the factor of their word.
  MOETIER_KERNEL static __m256i times(__m256i v, __m256i factors) {
    const __m256i low = _mm256_and_si256(_mm256_mullo_epi16(v, factors), _mm256_set1_epi16(255));
    return _mm256_or_si256(low, _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(v, 8), factors), 8));
  }
};

// --- a table of 16 values ---

struct RowIQ4XS {
  using Block = BlockIQ4_XS;
  static constexpr CodeKind kKind = CodeKind::table;
  static constexpr int kOffset = 128, kLargest = 255;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 1.0f;

  const Block& b;

  MOETIER_KERNEL RowIQ4XS(const Block& block, const Grids&) : b(block) {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    const __m256i values = _mm256_broadcastsi128_si256(load128(kIq4Values.data()));
    const __m256i both = _mm256_broadcastsi128_si256(load128(b.qs + 16 * s));
    const __m256i nibbles = _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_shuffle_epi8(values, _mm256_and_si256(nibbles, _mm256_set1_epi8(15)));
  }
  MOETIER_KERNEL __m256i scales() const {
    const __m256i low = _mm256_srlv_epi32(broadcast4(b.scales_low), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i high =
        _mm256_srlv_epi32(_mm256_set1_epi32(b.scales_high), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i six = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                        _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    return _mm256_sub_epi16(doubled_words(six), _mm256_set1_epi16(32));
  }
};

// --- grids of magnitudes with signs apart ---

struct RowIQ2XXS {
  using Block = BlockIQ2_XXS;
  static constexpr CodeKind kKind = CodeKind::masked;
  static constexpr int kOffset = 43, kLargest = 86;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.125f;

  const Block& b;
  const uint64_t* grid;
  __m256i words;
  OctetBytes signs;

  MOETIER_KERNEL RowIQ2XXS(const Block& block, const Grids& grids)
      : b(block), grid(grids.iq2_xxs), words(sign_words(block)), signs(seven_bit_signs(words)) {}
  MOETIER_KERNEL static __m256i sign_words(const Block& block) {
    const __m256 first = _mm256_castsi256_ps(load256(block.groups));
    const __m256 second = _mm256_castsi256_ps(load256(block.groups + 4));
    const __m256i mixed = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    return _mm256_permute4x64_epi64(mixed, 0xd8);
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return four_rows(grid, b.groups[s].index);
  }
  template <int s>
  MOETIER_KERNEL __m256i mask() const {
    return signs.bits<s>();
  }
  MOETIER_KERNEL __m256i scales() const { return odd_words(doubled_words(_mm256_srli_epi32(words, 28))); }
};

struct RowIQ2XS {
  using Block = BlockIQ2_XS;
  static constexpr CodeKind kKind = CodeKind::masked;
  static constexpr int kOffset = 43, kLargest = 86;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.125f;

  const Block& b;
  const uint64_t* grid;
  OctetBytes signs;

  MOETIER_KERNEL RowIQ2XS(const Block& block, const Grids& grids)
      : b(block), grid(grids.iq2_xs), signs(upper_seven_bits(block)) {}
  MOETIER_KERNEL static __m256i upper_seven_bits(const Block& block) {
    const __m256i low = load256(block.qs), high = load256(reinterpret_cast<const char*>(block.qs) + 32);
    const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(low, 9), _mm256_srli_epi16(high, 9));
    return with_parity32(_mm256_permute4x64_epi64(packed, 0xd8));
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    const uint16_t index[4] = {row(4 * s), row(4 * s + 1), row(4 * s + 2), row(4 * s + 3)};
    return four_rows(grid, index);
  }
  template <int s>
  MOETIER_KERNEL __m256i mask() const {
    return signs.bits<s>();
  }
  MOETIER_KERNEL uint16_t row(int n) const { return b.qs[n] & 511; }
  MOETIER_KERNEL __m256i scales() const { return odd_words(nibble_words(b.scales)); }
};

struct RowIQ2S {
  using Block = BlockIQ2_S;
  static constexpr CodeKind kKind = CodeKind::masked;
  static constexpr int kOffset = 43, kLargest = 86;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.125f;

  const Block& b;
  const uint64_t* grid;
  OctetBytes signs;
  alignas(32) uint16_t index[32];

  MOETIER_KERNEL RowIQ2S(const Block& block, const Grids& grids) : b(block), grid(grids.iq2_s), signs(block.signs) {
    // Each high byte four times, its fields moved to bit 8.
    const __m256i pattern = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1,  //
                                             2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
    const __m256i factors = _mm256_set1_epi64x(0x0004001000400100), bits = _mm256_set1_epi16(0x300);
    for (int h = 0; h < 2; ++h) {
      const __m256i fields = _mm256_shuffle_epi8(broadcast4(b.high + 4 * h), pattern);
      const __m256i high = _mm256_and_si256(_mm256_mullo_epi16(fields, factors), bits);
      const __m256i low = _mm256_cvtepu8_epi16(load128(b.index + 16 * h));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16 * h), _mm256_or_si256(low, high));
    }
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return four_rows(grid, index + 4 * s);
  }
  template <int s>
  MOETIER_KERNEL __m256i mask() const {
    return signs.bits<s>();
  }
  MOETIER_KERNEL __m256i scales() const { return odd_words(nibble_words(b.scales)); }
};

struct RowIQ3XXS {
  using Block = BlockIQ3_XXS;
  static constexpr CodeKind kKind = CodeKind::masked;
  static constexpr int kOffset = 62, kLargest = 124;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.25f;

  const Block& b;
  const uint32_t* grid;
  __m256i words;
  OctetBytes signs;

  MOETIER_KERNEL RowIQ3XXS(const Block& block, const Grids& grids)
      : b(block), grid(grids.iq3_xxs), words(load256(block.signs)), signs(seven_bit_signs(words)) {}
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return eight_rows(grid, b.index + 8 * s);
  }
  template <int s>
  MOETIER_KERNEL __m256i mask() const {
    return signs.bits<s>();
  }
  MOETIER_KERNEL __m256i scales() const { return odd_words(doubled_words(_mm256_srli_epi32(words, 28))); }
};

struct RowIQ3S {
  using Block = BlockIQ3_S;
  static constexpr CodeKind kKind = CodeKind::masked;
  static constexpr int kOffset = 15, kLargest = 30;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 1.0f;

  const Block& b;
  const uint32_t* grid;
  OctetBytes signs;
  alignas(32) uint16_t index[64];

  MOETIER_KERNEL RowIQ3S(const Block& block, const Grids& grids) : b(block), grid(grids.iq3_s), signs(block.signs) {
    // Word t of 16: bit t mod 8 of the group's high byte, moved to bit 8.
    const __m256i pattern = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1,  //
                                             1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1);
    const __m256i factors = _mm256_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2);
    for (int q = 0; q < 4; ++q) {
      const __m256i both = _mm256_set1_epi16(load_as<int16_t>(b.high + 2 * q));
      const __m256i high =
          _mm256_and_si256(_mm256_mullo_epi16(_mm256_shuffle_epi8(both, pattern), factors), _mm256_set1_epi16(256));
      const __m256i low = _mm256_cvtepu8_epi16(load128(b.index + 16 * q));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16 * q), _mm256_or_si256(low, high));
    }
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return eight_rows(grid, index + 8 * s);
  }
  template <int s>
  MOETIER_KERNEL __m256i mask() const {
    return signs.bits<s>();
  }
  MOETIER_KERNEL __m256i scales() const {
    const __m256i nibbles = _mm256_srlv_epi32(broadcast4(b.scales), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return odd_words(doubled_words(_mm256_and_si256(nibbles, _mm256_set1_epi32(15))));
  }
};

// --- IQ1: the grid has 8 (g + 1), 0 to 16; codes are that plus 2 for a shift up, so 8 g +- 1 + 9 ---

struct RowIQ1S {
  using Block = BlockIQ1_S;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 9, kLargest = 18;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.125f;

  const uint64_t* grid;
  __m256i words;  ///< the groups' 16-bit words as dwords
  alignas(32) uint16_t index[32];
  OctetBytes shift;  ///< of each octet: 2 for up

  MOETIER_KERNEL RowIQ1S(const Block& b, const Grids& grids)
      : grid(grids.iq1), words(_mm256_cvtepu16_epi32(load128(b.high))), shift(up(words)) {
    const __m128i high = load128(b.high);
    __m256i fields[2];
    three_bit_fields(high, fields);
    for (int h = 0; h < 2; ++h) {
      const __m256i bits = _mm256_and_si256(_mm256_srli_epi16(fields[h], 1), _mm256_set1_epi16(0x700));
      const __m256i low = _mm256_cvtepu8_epi16(load128(b.index + 16 * h));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16 * h), _mm256_or_si256(low, bits));
    }
  }
  MOETIER_KERNEL static __m256i up(__m256i words) {
    const __m256i down = _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 31);
    return _mm256_andnot_si256(down, _mm256_set1_epi8(2));
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return _mm256_add_epi8(four_rows(grid, index + 4 * s), shift.spread<s>());
  }
  MOETIER_KERNEL __m256i scales() const {
    return odd_words(doubled_words(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7))));
  }
};

struct RowIQ1M {
  using Block = BlockIQ1_M;
  static constexpr CodeKind kKind = CodeKind::offset;
  static constexpr int kOffset = 9, kLargest = 18;
  static constexpr bool kScaled = true;
  static constexpr float kUnit = 0.125f;

  const Block& b;
  const uint64_t* grid;
  alignas(32) uint16_t index[32];
  OctetBytes shift;  ///< of each octet: 2 for up

  MOETIER_KERNEL RowIQ1M(const Block& block, const Grids& grids) : b(block), grid(grids.iq1), shift(up(block)) {
    for (int h = 0; h < 2; ++h) {
      const __m256i three = _mm256_and_si256(nibble_words(b.high + 8 * h), _mm256_set1_epi16(7));
      const __m256i low = _mm256_cvtepu8_epi16(load128(b.index + 16 * h));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16 * h), _mm256_or_si256(low, _mm256_slli_epi16(three, 8)));
    }
  }
  MOETIER_KERNEL static __m256i up(const Block& block) {
    const __m256i low = nibble_words(block.high), high = nibble_words(block.high + 8);
    const __m256i nibbles = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
    return _mm256_and_si256(_mm256_cmpgt_epi8(_mm256_set1_epi8(8), nibbles), _mm256_set1_epi8(2));
  }
  template <int s>
  MOETIER_KERNEL __m256i codes() const {
    return _mm256_add_epi8(four_rows(grid, index + 4 * s), shift.spread<s>());
  }
  MOETIER_KERNEL __m256i scales() const {
    __m256i fields[2];
    three_bit_fields(load64(b.scales), fields);
    return odd_words(_mm256_and_si256(_mm256_srli_epi16(fields[0], 9), _mm256_set1_epi16(7)));
  }
};

}  // namespace moetier::MOETIER_AVX2_UNIT
