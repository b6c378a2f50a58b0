// Super-blocks of one row and 256 activations with AVX-512, for the types below four bits and their relatives. Only for
// files named *_avx512.cpp, which each have their own copy.
//
// For each type, a class with
//   Input          the activations of a block, brought once into the order in which the type's codes come
//   sum(b, g, x)   the integer sum of docs/numbers.md for a block, spread over 16 lanes
//   finish(s, x)   what is left to do once the lanes of eight rows have been added up
// The order of integer sums is free. A vector holds 64 codes; VNNI adds up four neighbours in a lane, and where that
// fits in int16 the same unit multiplies it with the lane's scale.
#pragma once

#include "compute/cpu/dot_avx512.h"
#include "quant/grids.h"
#include "quant/low_bit_blocks.h"

namespace moetier::avx512 {
namespace {

MOETIER_KERNEL __m512i load512(const void* at) {
  return _mm512_loadu_si512(at);
}
MOETIER_KERNEL __m256i load256(const void* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
MOETIER_KERNEL __m128i load128(const void* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
template <typename T>
MOETIER_KERNEL T load_as(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
MOETIER_KERNEL __m512i join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
MOETIER_KERNEL __m256i half_of(__m512i v, int half) {
  return half == 0 ? _mm512_castsi512_si256(v) : _mm512_extracti64x4_epi64(v, 1);
}
/// (v & mask) | bits.
MOETIER_KERNEL __m512i masked_or(__m512i v, __m512i mask, __m512i bits) {
  return _mm512_ternarylogic_epi32(v, mask, bits, 0xea);
}

/// Sums of four codes at most (int16) times a scale for each lane, whose upper words are zero.
MOETIER_KERNEL __m512i add_scaled(__m512i sum, __m512i codes, __m512i x, __m512i scale) {
  return _mm512_dpwssd_epi32(sum, _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, x), scale);
}
/// Dword j of each quarter everywhere in its quarter.
template <int j>
MOETIER_KERNEL __m512i dword_of_quarters(__m512i v) {
  return _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(j * 0x55));
}

/// 256 codes in order, 64 in a vector.
struct PlainInput {
  __m512i x[4];
  MOETIER_KERNEL explicit PlainInput(const Codes256& c) {
    for (int j = 0; j < 4; ++j) x[j] = load512(c.codes + 64 * j);
  }
};
/// As the codes of planes of two bits come: plane p of both halves.
struct PlanesInput {
  __m512i x[4];
  MOETIER_KERNEL explicit PlanesInput(const Codes256& c) {
    for (int p = 0; p < 4; ++p) x[p] = join(load256(c.codes + 32 * p), load256(c.codes + 128 + 32 * p));
  }
};
/// Words or bytes in the order 0 4 8 12, 1 5 9 13, ...: so dword_of_quarters<j>() of them, widened, has sub-blocks 4 j
/// to 4 j + 3 of 16 columns.
MOETIER_KERNEL __m256i by_quarters(__m256i words) {
  const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_permutexvar_epi16(order, words);
}
/// The same for codes in planes: sub-blocks 2 p, 2 p + 1, 8 + 2 p and 9 + 2 p in plane p.
MOETIER_KERNEL __m128i by_planes() {
  return _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
}

/// What most types do at the end: nothing.
struct NothingLeft {
  template <typename Input>
  MOETIER_KERNEL static __m256i finish(__m256i sums, const Input&) {
    return sums;
  }
};

// --- ternary types ---

/// The block's codes are 1 too large: less the sum of all activations.
MOETIER_KERNEL __m256i sum_of_all(const Codes256& c) {
  int sum = 0;
  for (const int16_t s : c.sums32) sum += s;
  return _mm256_set1_epi32(sum);
}

struct RowTQ2 {
  using Block = BlockTQ2_0;
  static constexpr float kUnit = 1.0f;

  struct Input : PlanesInput {
    __m256i all;
    MOETIER_KERNEL explicit Input(const Codes256& c) : PlanesInput(c), all(sum_of_all(c)) {}
  };
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids&, const Input& in) {
    const __m512i v = load512(b.qs), three = _mm512_set1_epi8(3);
    const __m512i first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(v, three), in.x[0]);
    const __m512i second =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(_mm512_srli_epi16(v, 2), three), in.x[1]);
    return _mm512_add_epi32(_mm512_dpbusd_epi32(first, _mm512_and_si512(_mm512_srli_epi16(v, 4), three), in.x[2]),
                            _mm512_dpbusd_epi32(second, _mm512_and_si512(_mm512_srli_epi16(v, 6), three), in.x[3]));
  }
  MOETIER_KERNEL static __m256i finish(__m256i sums, const Input& in) { return _mm256_sub_epi32(sums, in.all); }
};

/// A byte v_0 holds five digits; with v_(n+1) = 3 v_n mod 256, digit n is (3 v_n - v_(n+1)) / 256. So the digits need
/// not be found: the sum of digit * c is (3 * sum of v_n * c - sum of v_(n+1) * c) / 256.
struct RowTQ1 {
  using Block = BlockTQ1_0;
  static constexpr float kUnit = 1.0f;
  static constexpr auto kBytes = static_cast<__mmask64>((uint64_t{1} << 52) - 1);

  struct Input {
    __m512i x[5];  ///< of digit n of all 52 bytes
    __m256i all;
    MOETIER_KERNEL explicit Input(const Codes256& c) : all(sum_of_all(c)) {
      for (int n = 0; n < 5; ++n) {
        const __m128i last = n < 4 ? _mm_cvtsi32_si128(load_as<int>(c.codes + 240 + 4 * n)) : _mm_setzero_si128();
        x[n] = join(load256(c.codes + 32 * n),
                    _mm256_inserti128_si256(_mm256_castsi128_si256(load128(c.codes + 160 + 16 * n)), last, 1));
      }
    }
  };
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids&, const Input& in) {
    __m512i v = _mm512_maskz_loadu_epi8(kBytes, b.qs);
    __m512i these = _mm512_setzero_si512(), next = _mm512_setzero_si512();
    for (int n = 0; n < 5; ++n) {
      these = _mm512_dpbusd_epi32(these, v, in.x[n]);
      v = _mm512_add_epi8(v, _mm512_add_epi8(v, v));
      next = _mm512_dpbusd_epi32(next, v, in.x[n]);
    }
    return _mm512_sub_epi32(_mm512_add_epi32(_mm512_add_epi32(these, these), these), next);
  }
  MOETIER_KERNEL static __m256i finish(__m256i sums, const Input& in) {
    return _mm256_sub_epi32(_mm256_srai_epi32(sums, 8), in.all);
  }
};

// --- Q2_K, Q3_K, IQ4_XS ---

struct RowQ2K : NothingLeft {
  using Block = BlockQ2_K;
  static constexpr float kUnit = 1.0f;

  struct Input : PlanesInput {
    __m256i sums;
    MOETIER_KERNEL explicit Input(const Codes256& c) : PlanesInput(c), sums(load256(c.sums16)) {}
  };
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids&, const Input& in) {
    const __m512i v = load512(b.qs), three = _mm512_set1_epi8(3);
    const __m128i scales = _mm_and_si128(_mm_shuffle_epi8(load128(b.scales), by_planes()), _mm_set1_epi8(15));
    const __m512i s = _mm512_cvtepu8_epi32(scales);
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, _mm512_and_si512(v, three), in.x[0], dword_of_quarters<0>(s));
    sum = add_scaled(sum, _mm512_and_si512(_mm512_srli_epi16(v, 2), three), in.x[1], dword_of_quarters<1>(s));
    sum = add_scaled(sum, _mm512_and_si512(_mm512_srli_epi16(v, 4), three), in.x[2], dword_of_quarters<2>(s));
    return add_scaled(sum, _mm512_and_si512(_mm512_srli_epi16(v, 6), three), in.x[3], dword_of_quarters<3>(s));
  }
  /// The sum of min * sum c, in eight lanes.
  MOETIER_KERNEL static __m256i min_sum(const Block& b, const Input& in) {
    const __m128i mins = _mm_and_si128(_mm_srli_epi16(load128(b.scales), 4), _mm_set1_epi8(15));
    return _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins), in.sums);
  }
};

struct RowQ3K : NothingLeft {
  using Block = BlockQ3_K;
  static constexpr float kUnit = 1.0f;

  struct Input : PlanesInput {
    __m256i without;  ///< the codes are 4 too large
    MOETIER_KERNEL explicit Input(const Codes256& c) : PlanesInput(c) {
      const __m256i order = _mm256_cvtepu8_epi16(by_planes());
      const __m256i sums = _mm256_permutexvar_epi16(order, load256(c.sums16));
      without = _mm256_mullo_epi16(sums, _mm256_set1_epi16(-4));
    }
  };
  MOETIER_KERNEL static __m256i scales(const Block& b) {
    constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f, kPairs = 0x0303030303030303;
    const auto low = load_as<uint64_t>(b.scales);
    uint64_t high = load_as<uint32_t>(b.scales + 8);
    high |= high >> 2 << 32;
    const uint64_t first = (low & kNibbles) | (high & kPairs) << 4;
    const uint64_t second = (low >> 4 & kNibbles) | (high >> 4 & kPairs) << 4;
    const __m128i bytes = _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_sub_epi8(bytes, _mm_set1_epi8(32)), by_planes()));
  }
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids&, const Input& in) {
    const __m512i v = load512(b.qs), three = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    const __m256i high = load256(b.hmask);
    const __m512i h = join(high, _mm256_srli_epi16(high, 4));  // bit p: of plane p
    const __m256i words = scales(b);
    const __m512i s = _mm512_cvtepu16_epi32(words);
    // code | (h & four)
    const auto with = [&](__m512i code, __m512i bits) { return _mm512_ternarylogic_epi32(code, bits, four, 0xf8); };
    const __m512i a = with(_mm512_and_si512(v, three), _mm512_slli_epi16(h, 2));
    const __m512i c = with(_mm512_and_si512(_mm512_srli_epi16(v, 2), three), _mm512_slli_epi16(h, 1));
    const __m512i d = with(_mm512_and_si512(_mm512_srli_epi16(v, 4), three), h);
    const __m512i e = with(_mm512_and_si512(_mm512_srli_epi16(v, 6), three), _mm512_srli_epi16(h, 1));
    __m512i sum = _mm512_zextsi256_si512(_mm256_madd_epi16(words, in.without));
    sum = add_scaled(sum, a, in.x[0], dword_of_quarters<0>(s));
    sum = add_scaled(sum, c, in.x[1], dword_of_quarters<1>(s));
    sum = add_scaled(sum, d, in.x[2], dword_of_quarters<2>(s));
    return add_scaled(sum, e, in.x[3], dword_of_quarters<3>(s));
  }
};

/// Table values are taken 128 too large. Eight columns' sum times a scale, and two of them, are integers below 2^24
/// (8 * 241 * 127 * 32 * 2), which float32 adds and multiplies without rounding.
struct RowIQ4XS : NothingLeft {
  using Block = BlockIQ4_XS;
  static constexpr float kUnit = 1.0f;

  struct Input {
    __m512i low[2], high[2];  ///< columns of low and high nibbles, of groups 0-3 and 4-7
    __m256i sums;
    MOETIER_KERNEL explicit Input(const Codes256& c) : sums(_mm256_cvtepu16_epi32(load128(c.sums32))) {
      for (int h = 0; h < 2; ++h) {
        const __m512i a = load512(c.codes + 128 * h), b = load512(c.codes + 128 * h + 64);
        low[h] = _mm512_shuffle_i64x2(a, b, 0x88), high[h] = _mm512_shuffle_i64x2(a, b, 0xdd);
      }
    }
  };
  MOETIER_KERNEL static __m256i scales(const Block& b) {
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<int>(b.scales_low)),
                                          _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i high =
        _mm256_srlv_epi32(_mm256_set1_epi32(b.scales_high << 4), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i six =
        _mm256_ternarylogic_epi32(_mm256_and_si256(low, _mm256_set1_epi32(15)), high, _mm256_set1_epi32(48), 0xf8);
    return _mm256_sub_epi32(six, _mm256_set1_epi32(32));
  }
  MOETIER_KERNEL static __m512i values() {
    const __m128i signed_values = load128(kIq4Values.data());
    return _mm512_broadcast_i32x4(_mm_xor_si128(signed_values, _mm_set1_epi8(-128)));
  }
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids&, const Input& in) {
    const __m512i table = values(), nibble = _mm512_set1_epi8(15);
    const __m256i s = scales(b);
    const __m512 factors = _mm512_castps256_ps512(_mm256_cvtepi32_ps(s));
    const auto eight = [&](int h) {
      const __m512i v = load512(b.qs + 64 * h);
      const __m512i low = _mm512_shuffle_epi8(table, _mm512_and_si512(v, nibble));
      const __m512i high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble));
      const __m512i first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, in.low[h]);
      return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(first, high, in.high[h]));
    };
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    const __m512 exact = _mm512_fmadd_ps(eight(1), _mm512_permutexvar_ps(second, factors),
                                         _mm512_mul_ps(eight(0), _mm512_permutexvar_ps(first, factors)));
    const __m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(s, in.sums), 7);
    return _mm512_sub_epi32(_mm512_cvtps_epi32(exact), _mm512_zextsi256_si512(offset));
  }
};

// --- grids of magnitudes with signs apart ---

/// Eight rows of a grid of 8, at the dwords of half a vector.
MOETIER_KERNEL __m512i octets(const uint64_t* grid, __m512i index, int half) {
  return _mm512_i32gather_epi64(half_of(index, half), grid, 8);
}
/// Lane i: group 2 j + i / 8 of eight dwords.
template <int j>
MOETIER_KERNEL __m512i of_groups(__m512i groups) {
  const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return _mm512_permutexvar_epi32(_mm512_add_epi32(index, _mm512_set1_epi32(2 * j)), groups);
}

/// The 7-bit signs of eight dwords (octet l at bit 7l) as bytes with parity.
struct SevenBitSigns {
  alignas(32) uint64_t of[4];

  MOETIER_KERNEL explicit SevenBitSigns(__m256i v) {
    // (v & mask) | rest.
    const auto byte = [](__m256i from, int l, __m256i rest) {
      return _mm256_ternarylogic_epi32(from, _mm256_set1_epi32(0x7f << (8 * l)), rest, 0xea);
    };
    __m256i seven = _mm256_and_si256(v, _mm256_set1_epi32(0x7f));
    seven = byte(_mm256_slli_epi32(v, 1), 1, seven);
    seven = byte(_mm256_slli_epi32(v, 2), 2, seven);
    seven = byte(_mm256_slli_epi32(v, 3), 3, seven);
    store(seven);
  }
  /// Sets bit 7 where the number of ones is odd.
  MOETIER_KERNEL void store(__m256i seven) {
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, nibble));
    const __m256i high = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(seven, 4), nibble));
    // seven | (low ^ high)
    _mm256_store_si256(reinterpret_cast<__m256i*>(of), _mm256_ternarylogic_epi32(seven, low, high, 0xf6));
  }
  MOETIER_KERNEL SevenBitSigns() = default;
};

/// 2 * the top nibble + 1 of eight dwords.
MOETIER_KERNEL __m512i odd_top_nibbles(__m256i words) {
  return _mm512_castsi256_si512(_mm256_or_si256(_mm256_srli_epi32(words, 27), _mm256_set1_epi32(1)));
}

/// 16 fields of a qword of four words, as 2 * field + 1, by quarters. kBits: from one field to the next in a word.
template <int kBits, int kMask>
MOETIER_KERNEL __m256i odd_fields(const void* words) {
  const __m256i all = _mm256_set1_epi64x(load_as<int64_t>(words));
  const __m256i shifts = _mm256_setr_epi16(0, 0, 0, 0, kBits, kBits, kBits, kBits, 2 * kBits, 2 * kBits, 2 * kBits,
                                           2 * kBits, 3 * kBits, 3 * kBits, 3 * kBits, 3 * kBits);
  const __m256i fields = _mm256_srlv_epi16(all, shifts);
  return _mm256_ternarylogic_epi32(_mm256_add_epi16(fields, fields), _mm256_set1_epi16(2 * kMask), _mm256_set1_epi16(1),
                                   0xea);
}

struct RowIQ2XXS : NothingLeft {
  using Block = BlockIQ2_XXS;
  using Input = PlainInput;
  static constexpr float kUnit = 0.125f;

  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m512i groups = load512(b.groups);
    const __m256i bytes = _mm512_cvtepi64_epi32(groups), words = _mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32));
    const SevenBitSigns signs(words);
    const __m512i s = odd_top_nibbles(words);
    const __m512i first = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(bytes));
    const __m512i second = _mm512_cvtepu8_epi32(_mm256_extracti128_si256(bytes, 1));
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, octets(g.iq2_xxs, first, 0), turned(in.x[0], signs.of[0]), of_groups<0>(s));
    sum = add_scaled(sum, octets(g.iq2_xxs, first, 1), turned(in.x[1], signs.of[1]), of_groups<1>(s));
    sum = add_scaled(sum, octets(g.iq2_xxs, second, 0), turned(in.x[2], signs.of[2]), of_groups<2>(s));
    return add_scaled(sum, octets(g.iq2_xxs, second, 1), turned(in.x[3], signs.of[3]), of_groups<3>(s));
  }
};

struct RowIQ2XS : NothingLeft {
  using Block = BlockIQ2_XS;
  using Input = PlainInput;
  static constexpr float kUnit = 0.125f;

  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m512i v = load512(b.qs);
    SevenBitSigns signs;
    signs.store(_mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 9)));
    const __m512i rows = _mm512_and_si512(v, _mm512_set1_epi16(511));
    const __m512i first = _mm512_cvtepu16_epi32(half_of(rows, 0)), second = _mm512_cvtepu16_epi32(half_of(rows, 1));
    const __m512i s = _mm512_cvtepu16_epi32(odd_fields<4, 15>(b.scales));
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, octets(g.iq2_xs, first, 0), turned(in.x[0], signs.of[0]), dword_of_quarters<0>(s));
    sum = add_scaled(sum, octets(g.iq2_xs, first, 1), turned(in.x[1], signs.of[1]), dword_of_quarters<1>(s));
    sum = add_scaled(sum, octets(g.iq2_xs, second, 0), turned(in.x[2], signs.of[2]), dword_of_quarters<2>(s));
    return add_scaled(sum, octets(g.iq2_xs, second, 1), turned(in.x[3], signs.of[3]), dword_of_quarters<3>(s));
  }
};

struct RowIQ2S : NothingLeft {
  using Block = BlockIQ2_S;
  using Input = PlainInput;
  static constexpr float kUnit = 0.125f;

  /// Rows of sixteen octets: a byte, and two bits more, those of octet n at bit 2n.
  MOETIER_KERNEL static __m512i rows(const uint8_t* low, const uint8_t* high) {
    const __m512i to_bit8 = _mm512_setr_epi32(8, 6, 4, 2, 0, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10);
    const __m512i bits = _mm512_rolv_epi32(_mm512_set1_epi32(load_as<int>(high)), to_bit8);
    return masked_or(bits, _mm512_set1_epi32(0x300), _mm512_cvtepu8_epi32(load128(low)));
  }
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m512i first = rows(b.index, b.high), second = rows(b.index + 16, b.high + 4);
    const __m512i s = _mm512_cvtepu16_epi32(odd_fields<4, 15>(b.scales));
    const auto signs = [&](int j) { return load_as<uint64_t>(b.signs + 8 * j); };
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, octets(g.iq2_s, first, 0), turned(in.x[0], signs(0)), dword_of_quarters<0>(s));
    sum = add_scaled(sum, octets(g.iq2_s, first, 1), turned(in.x[1], signs(1)), dword_of_quarters<1>(s));
    sum = add_scaled(sum, octets(g.iq2_s, second, 0), turned(in.x[2], signs(2)), dword_of_quarters<2>(s));
    return add_scaled(sum, octets(g.iq2_s, second, 1), turned(in.x[3], signs(3)), dword_of_quarters<3>(s));
  }
};

struct RowIQ3XXS : NothingLeft {
  using Block = BlockIQ3_XXS;
  using Input = PlainInput;
  static constexpr float kUnit = 0.25f;

  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m256i words = load256(b.signs);
    const SevenBitSigns signs(words);
    const __m512i s = odd_top_nibbles(words);
    const auto codes = [&](int j) { return quads(g.iq3_xxs, _mm512_cvtepu8_epi32(load128(b.index + 16 * j))); };
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, codes(0), turned(in.x[0], signs.of[0]), of_groups<0>(s));
    sum = add_scaled(sum, codes(1), turned(in.x[1], signs.of[1]), of_groups<1>(s));
    sum = add_scaled(sum, codes(2), turned(in.x[2], signs.of[2]), of_groups<2>(s));
    return add_scaled(sum, codes(3), turned(in.x[3], signs.of[3]), of_groups<3>(s));
  }
};

struct RowIQ3S : NothingLeft {
  using Block = BlockIQ3_S;
  using Input = PlainInput;
  static constexpr float kUnit = 1.0f;

  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    // Lane i of quarter q, dword j: group 2 j + q / 2.
    const __m512i shifts = _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 4, 12, 20, 28, 4, 12, 20, 28);
    const __m512i nibbles = _mm512_srlv_epi32(_mm512_set1_epi32(load_as<int>(b.scales)), shifts);
    const __m512i s = masked_or(_mm512_add_epi32(nibbles, nibbles), _mm512_set1_epi32(30), _mm512_set1_epi32(1));
    const auto codes = [&](int j) {
      const __m512i low = _mm512_cvtepu8_epi32(load128(b.index + 16 * j));
      const auto high = static_cast<__mmask16>(load_as<uint16_t>(b.high + 2 * j));
      return quads(g.iq3_s, _mm512_mask_or_epi32(low, high, low, _mm512_set1_epi32(256)));
    };
    const auto signs = [&](int j) { return load_as<uint64_t>(b.signs + 8 * j); };
    __m512i sum = _mm512_setzero_si512();
    sum = add_scaled(sum, codes(0), turned(in.x[0], signs(0)), dword_of_quarters<0>(s));
    sum = add_scaled(sum, codes(1), turned(in.x[1], signs(1)), dword_of_quarters<1>(s));
    sum = add_scaled(sum, codes(2), turned(in.x[2], signs(2)), dword_of_quarters<2>(s));
    return add_scaled(sum, codes(3), turned(in.x[3], signs(3)), dword_of_quarters<3>(s));
  }
};

// --- IQ1: the grid has 8 (g + 1), a weight is 8 g +- 1 ---

struct RowIQ1S : NothingLeft {
  using Block = BlockIQ1_S;
  static constexpr float kUnit = 0.125f;

  struct Input : PlainInput {
    __m128i sums;
    MOETIER_KERNEL explicit Input(const Codes256& c) : PlainInput(c), sums(load128(c.sums32)) {}
  };
  /// Rows of sixteen octets: a byte, and three bits more, those of octet l at bit 3l of the group's word. `words`: of
  /// all groups, in each quarter.
  template <int kHalf>
  MOETIER_KERNEL static __m512i rows(const uint8_t* low, __m512i words) {
    const __m512i words_of =
        _mm512_add_epi16(_mm512_setr_epi32(0x100, 0x100, 0x100, 0x100, 0x302, 0x302, 0x302, 0x302,  //
                                           0x504, 0x504, 0x504, 0x504, 0x706, 0x706, 0x706, 0x706),
                         _mm512_set1_epi32(kHalf * 0x0808));
    const __m512i pattern = _mm512_or_si512(words_of, _mm512_set1_epi32(static_cast<int>(0x80800000u)));
    const __m512i to_bit8 = _mm512_setr_epi32(8, 5, 2, 31, 8, 5, 2, 31, 8, 5, 2, 31, 8, 5, 2, 31);
    const __m512i bits = _mm512_rolv_epi32(_mm512_shuffle_epi8(words, pattern), to_bit8);
    return masked_or(bits, _mm512_set1_epi32(0x700), _mm512_cvtepu8_epi32(load128(low)));
  }
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m128i words = load128(b.high);
    const __m512i all = _mm512_broadcast_i32x4(words);
    const __m512i first = rows<0>(b.index, all), second = rows<1>(b.index + 16, all);
    const __m128i scales =
        _mm_ternarylogic_epi32(_mm_srli_epi16(words, 11), _mm_set1_epi16(14), _mm_set1_epi16(1), 0xea);
    // Less 8, and 1 more or less.
    const __m128i down = _mm_srai_epi16(words, 15);
    const __m128i shift = _mm_add_epi16(_mm_add_epi16(down, down), _mm_set1_epi16(-7));
    const __m512i s = _mm512_castsi256_si512(_mm256_cvtepu16_epi32(scales));
    __m512i sum = _mm512_zextsi128_si512(_mm_madd_epi16(_mm_mullo_epi16(scales, shift), in.sums));
    sum = add_scaled(sum, octets(g.iq1, first, 0), in.x[0], of_groups<0>(s));
    sum = add_scaled(sum, octets(g.iq1, first, 1), in.x[1], of_groups<1>(s));
    sum = add_scaled(sum, octets(g.iq1, second, 0), in.x[2], of_groups<2>(s));
    return add_scaled(sum, octets(g.iq1, second, 1), in.x[3], of_groups<3>(s));
  }
};

struct RowIQ1M : NothingLeft {
  using Block = BlockIQ1_M;
  static constexpr float kUnit = 0.125f;

  struct Input : PlainInput {
    __m256i without;  ///< codes are 8 g + 8, and 0 or 2 for the shift
    MOETIER_KERNEL explicit Input(const Codes256& c)
        : PlainInput(c), without(_mm256_mullo_epi16(by_quarters(load256(c.sums16)), _mm256_set1_epi16(-9))) {}
  };
  /// The nibbles of sixteen octets, in bits 8 to 11 of a lane. `dwords`: of all octets.
  template <int kHalf>
  MOETIER_KERNEL static __m512i nibbles(__m512i dwords) {
    const __m512i of_dword = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i to_bit8 = _mm512_setr_epi32(8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12);
    const __m512i index = _mm512_add_epi32(of_dword, _mm512_set1_epi32(2 * kHalf));
    return _mm512_rolv_epi32(_mm512_permutexvar_epi32(index, dwords), to_bit8);
  }
  /// Codes of eight octets; `up` has a bit for each.
  MOETIER_KERNEL static __m512i codes(const Grids& g, __m512i rows, int half, uint32_t up) {
    const __m512i grid = octets(g.iq1, rows, half);
    return _mm512_mask_add_epi64(grid, static_cast<__mmask8>(up), grid, _mm512_set1_epi64(0x0202020202020202));
  }
  MOETIER_KERNEL static __m512i sum(const Block& b, const Grids& g, const Input& in) {
    const __m512i dwords = _mm512_castsi128_si512(load128(b.high));
    const __m512i n0 = nibbles<0>(dwords), n1 = nibbles<1>(dwords);
    const __m512i three = _mm512_set1_epi32(0x700), fourth = _mm512_set1_epi32(0x800);
    const __m512i first = masked_or(n0, three, _mm512_cvtepu8_epi32(load128(b.index)));
    const __m512i second = masked_or(n1, three, _mm512_cvtepu8_epi32(load128(b.index + 16)));
    const uint32_t up0 = _mm512_testn_epi32_mask(n0, fourth), up1 = _mm512_testn_epi32_mask(n1, fourth);
    const __m256i words = odd_fields<3, 7>(b.scales);
    const __m512i s = _mm512_cvtepu16_epi32(words);
    __m512i sum = _mm512_zextsi256_si512(_mm256_madd_epi16(words, in.without));
    sum = add_scaled(sum, codes(g, first, 0, up0), in.x[0], dword_of_quarters<0>(s));
    sum = add_scaled(sum, codes(g, first, 1, up0 >> 8), in.x[1], dword_of_quarters<1>(s));
    sum = add_scaled(sum, codes(g, second, 0, up1), in.x[2], dword_of_quarters<2>(s));
    return add_scaled(sum, codes(g, second, 1, up1 >> 8), in.x[3], dword_of_quarters<3>(s));
  }
};

}  // namespace
}  // namespace moetier::avx512
