// How sixteen rows' super-blocks of the types below four bits and their relatives become planes of bytes. Rows of a
// grid are gathered for sixteen weight rows at once. Only for files named *_avx512.cpp and *_amx.cpp, which each have
// their own copy.
//
// A block's integer sum has every weight code multiplied by its sub-block's scale. Such a product does not fit in a
// byte, but two do: code * scale = (high << kShift) + low. With them sums go on through all 256 columns. A type's class
// has
//   kPlanes       1 where a byte is enough (`low`), else 2; kSigned: whether the bytes are
//   decode()      which makes the planes and d (and dmin and mins)
//   kMins         the number of its minima in a block, each for 256 / kMins columns; they are words, two in a dword
//   finish()      the sum of docs/numbers.md from the plane's sum and that of all activation codes
#pragma once

#include "compute/cpu/dot_k_avx512.h"
#include "quant/grids.h"
#include "quant/low_bit_blocks.h"

namespace moetier::avx512 {
namespace {

// Loads are of 16 bytes and stay within the block: a field of less is taken with what stands before it.

/// What types without minima and with one plane of plain products need.
struct OnePlane {
  static constexpr int kPlanes = 1, kShift = 0, kMins = 0;
  static constexpr bool kSigned = true;
  __m512 d;

  MOETIER_KERNEL static __m512i finish(__m512i sum, int32_t) { return sum; }
};
struct TwoPlanes {
  static constexpr int kPlanes = 2, kMins = 0;
  static constexpr bool kSigned = true;
  __m512 d;
};

template <typename Block>
MOETIER_KERNEL __m512 load_scale(const Rows16& rows, float unit) {
  const __m512 d = _mm512_cvtph_ps(gather16(rows, offsetof(Block, d)));
  return _mm512_mul_ps(d, _mm512_set1_ps(unit));
}
MOETIER_KERNEL void put(uint8_t* at, __m512i v) {
  _mm512_store_si512(at, v);
}
/// Dwords below 2^15 in both of their words.
MOETIER_KERNEL __m512i in_both_words(__m512i v) {
  return _mm512_or_si512(v, _mm512_slli_epi32(v, 16));
}
/// Dwords' lowest bytes in all four bytes.
MOETIER_KERNEL __m512i in_all_bytes(__m512i v) {
  const __m128i pattern = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(pattern));
}
/// kBits of each dword from bit `from` on.
template <int kBits>
MOETIER_KERNEL __m512i field(__m512i v, int from) {
  return _mm512_and_si512(_mm512_srli_epi32(v, static_cast<unsigned>(from)), _mm512_set1_epi32((1 << kBits) - 1));
}
/// 2 * field + 1, in both words.
template <int kBits>
MOETIER_KERNEL __m512i odd_field(__m512i v, int from) {
  const __m512i x = field<kBits>(v, from);
  return in_both_words(_mm512_or_si512(_mm512_add_epi32(x, x), _mm512_set1_epi32(1)));
}
/// a where the byte is even, else b.
MOETIER_KERNEL __m512i even_odd_bytes(__m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xff), a, b, 0xca);
}

/// Words whose magnitude is below 2^14, of even and odd bytes, in two planes (7 bits in the lower one).
MOETIER_KERNEL void put_words(__m512i even, __m512i odd, __m512i& high, __m512i& low) {
  high = even_odd_bytes(_mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1));
  low = _mm512_and_si512(even_odd_bytes(even, _mm512_slli_epi16(odd, 8)), _mm512_set1_epi8(0x7f));
}

// --- planes of two bits ---

/// put(v, k, i): two bits for each of columns 4 i to 4 i + 3, of sub-block k.
template <typename Put>
MOETIER_KERNEL void for_planes(const Rows16& rows, size_t offset, Put put_codes) {
  const __m512i three = _mm512_set1_epi8(3);
  for (int q = 0; q < 4; ++q) {  // 16 bytes of a half
    __m512i v[4];
    load_transposed(rows, offset + static_cast<size_t>(16 * q), v);
    for (int j = 0; j < 4; ++j) {
      const int k = 8 * (q / 2) + q % 2, i = 4 * k + j;
      put_codes(_mm512_and_si512(v[j], three), k, i);
      put_codes(_mm512_and_si512(_mm512_srli_epi16(v[j], 2), three), k + 2, i + 8);
      put_codes(_mm512_and_si512(_mm512_srli_epi16(v[j], 4), three), k + 4, i + 16);
      put_codes(_mm512_and_si512(_mm512_srli_epi16(v[j], 6), three), k + 6, i + 24);
    }
  }
}

struct TQ2_0 : OnePlane {
  using Block = BlockTQ2_0;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    d = load_scale<Block>(rows, 1.0f);
    for_planes(rows, offsetof(Block, qs),
               [&](__m512i v, int, int i) { put(planes.low[i], _mm512_sub_epi8(v, _mm512_set1_epi8(1))); });
  }
};

struct TQ1_0 : OnePlane {
  using Block = BlockTQ1_0;
  /// The first digits of base-3 fractions, less 1.
  MOETIER_KERNEL static __m512i digits(__m512i v) {
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i up = _mm512_mask_add_epi8(_mm512_set1_epi8(-1), _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86)),
                                            _mm512_set1_epi8(-1), one);
    return _mm512_mask_add_epi8(up, _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(static_cast<char>(171))), up, one);
  }
  MOETIER_KERNEL static __m512i thrice(__m512i v) { return _mm512_add_epi8(v, _mm512_add_epi8(v, v)); }
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    d = load_scale<Block>(rows, 1.0f);
    __m512i v[4];
    for (int q = 0; q < 3; ++q) {
      load_transposed(rows, static_cast<size_t>(16 * q), v);
      for (int n = 0; n < 5; ++n) {
        for (int j = 0; j < 4; ++j) {
          put(planes.low[q < 2 ? 8 * n + 4 * q + j : 40 + 4 * n + j], digits(v[j]));
          v[j] = thrice(v[j]);
        }
      }
    }
    load_transposed(rows, offsetof(Block, qh) - 12, v);
    for (int n = 0; n < 4; ++n, v[3] = thrice(v[3])) put(planes.low[60 + n], digits(v[3]));
  }
};

/// A sub-block's byte of 16, in both words; the bytes come transposed.
MOETIER_KERNEL __m512i scale_byte(const __m512i bytes[4], int k) {
  return in_both_words(field<8>(bytes[k / 4], 8 * (k % 4)));
}

struct Q2_K : OnePlane {
  using Block = BlockQ2_K;
  static constexpr int kMins = 16;
  __m512 dmin;
  __m512i mins[8];

  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    __m512i bytes[4];
    load_transposed(rows, offsetof(Block, scales), bytes);
    halves_to_floats(gather32(rows, offsetof(Block, d)), d, dmin);
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m512i m = _mm512_and_si512(_mm512_srli_epi16(bytes[i], 4), nibble);
      mins[2 * i] = bytes_to_words<0, 1>(m), mins[2 * i + 1] = bytes_to_words<2, 3>(m);
      bytes[i] = _mm512_and_si512(bytes[i], nibble);
    }
    __m512i scales[16];
    for (int k = 0; k < 16; ++k) scales[k] = scale_byte(bytes, k);
    // To 45: both bytes of a word at once, since the lower product does not reach into the upper one.
    for_planes(rows, offsetof(Block, qs),
               [&](__m512i v, int k, int i) { put(planes.low[i], _mm512_mullo_epi16(v, scales[k])); });
  }
};

/// A product of -4 to 3 and -32 to 31 fits in a byte if its sign is turned.
struct Q3_K : OnePlane {
  using Block = BlockQ3_K;
  MOETIER_KERNEL static __m512i finish(__m512i sum, int32_t) { return _mm512_sub_epi32(_mm512_setzero_si512(), sum); }
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    d = load_scale<Block>(rows, 1.0f);
    __m512i packed[4], high[8], six[4], scales[16], fours[16];
    load_transposed(rows, offsetof(Block, scales) - 4, packed);
    load_transposed(rows, offsetof(Block, hmask), high);
    load_transposed(rows, offsetof(Block, hmask) + 16, high + 4);
    const __m512i nibble = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(3);
    for (int i = 0; i < 4; ++i) {
      const __m512i low = _mm512_and_si512(_mm512_srli_epi16(packed[1 + i % 2], i < 2 ? 0 : 4), nibble);
      const __m512i top = _mm512_and_si512(_mm512_srli_epi16(packed[3], static_cast<unsigned>(2 * i)), pair);
      six[i] = _mm512_or_si512(low, _mm512_slli_epi16(top, 4));
    }
    for (int k = 0; k < 16; ++k) {
      scales[k] = _mm512_sub_epi16(scale_byte(six, k), _mm512_set1_epi16(32));
      fours[k] = in_all_bytes(_mm512_slli_epi16(scales[k], 2));
    }
    for_planes(rows, offsetof(Block, qs), [&](__m512i v, int k, int i) {
      // (4 - u) * scale, modulo 256, with u = 0 to 7.
      const __m512i bit = _mm512_srli_epi16(high[i % 8], static_cast<unsigned>(i / 8));
      const __m512i four = _mm512_slli_epi16(_mm512_and_si512(bit, _mm512_set1_epi8(1)), 2);
      const __m512i u = _mm512_or_si512(v, four);
      const __m512i odd = _mm512_mullo_epi16(_mm512_andnot_si512(_mm512_set1_epi16(0xff), u), scales[k]);
      const __m512i product = even_odd_bytes(_mm512_mullo_epi16(u, scales[k]), odd);
      put(planes.low[i], _mm512_sub_epi8(fours[k], product));
    });
  }
};

struct IQ4_XS : TwoPlanes {
  using Block = BlockIQ4_XS;
  static constexpr int kShift = 7;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    __m512i head[4];
    load_transposed(rows, 0, head);
    d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(head[0]));
    const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values.data())));
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int s = 0; s < 8; ++s) {
      const __m512i six =
          _mm512_or_si512(field<4>(head[1], 4 * s), _mm512_slli_epi32(field<2>(head[0], 16 + 2 * s), 4));
      const __m512i scale = _mm512_sub_epi16(in_both_words(six), _mm512_set1_epi16(32));
      const auto store = [&](__m512i nibbles, int i) {
        const __m512i code = _mm512_shuffle_epi8(values, nibbles);
        const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(code, 8), 8), odd = _mm512_srai_epi16(code, 8);
        __m512i high, low;
        put_words(_mm512_mullo_epi16(even, scale), _mm512_mullo_epi16(odd, scale), high, low);
        put(planes.high[i], high), put(planes.low[i], low);
      };
      __m512i v[4];
      load_transposed(rows, offsetof(Block, qs) + static_cast<size_t>(16 * s), v);
      for (int j = 0; j < 4; ++j) {
        store(_mm512_and_si512(v[j], nibble), 8 * s + j);
        store(_mm512_and_si512(_mm512_srli_epi16(v[j], 4), nibble), 8 * s + 4 + j);
      }
    }
  }
};

// --- grids ---

/// The rows of a grid of 8 at `index`, for sixteen weight rows: columns 0-3 and 4-7.
MOETIER_KERNEL void octets(const uint64_t* grid, __m512i index, __m512i v[2]) {
  const __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(index), grid, 8);
  const __m512i high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(index, 1), grid, 8);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  v[0] = _mm512_permutex2var_epi32(low, even, high);
  v[1] = _mm512_permutex2var_epi32(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}

/// The signs of an octet of sixteen weight rows: byte `byte` of their dwords.
struct OctetSigns {
  __mmask64 half[2];
  MOETIER_KERNEL OctetSigns(__m512i bytes, int byte) {
    const __m512i all = in_all_bytes(_mm512_srli_epi32(bytes, static_cast<unsigned>(8 * byte)));
    half[0] = _mm512_test_epi8_mask(all, _mm512_set1_epi32(0x08040201));
    half[1] = _mm512_test_epi8_mask(all, _mm512_set1_epi32(static_cast<int>(0x80402010u)));
  }
};

/// Magnitudes to 62 times a scale to 31, with signs, as planes kShift = 7 apart.
MOETIER_KERNEL void put_signed(__m512i u, __m512i scale, __mmask64 signs, Planes& planes, int i) {
  const __m512i even = _mm512_mullo_epi16(_mm512_and_si512(u, _mm512_set1_epi16(0xff)), scale);
  const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(u, 8), scale);
  __m512i high, low;
  put_words(even, odd, high, low);
  put(planes.high[i], turned(high, signs)), put(planes.low[i], turned(low, signs));
}

/// Bytes of seven bits with bit 7 set where their number of ones is odd.
MOETIER_KERNEL __m512i with_parity(__m512i seven) {
  const __m512i odd =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i low = _mm512_shuffle_epi8(odd, _mm512_and_si512(seven, nibble));
  const __m512i high = _mm512_shuffle_epi8(odd, _mm512_and_si512(_mm512_srli_epi16(seven, 4), nibble));
  return _mm512_ternarylogic_epi32(seven, low, high, 0xf6);  // seven | (low ^ high)
}
/// The 7-bit signs of a group's word (octet l at bit 7l) as bytes.
MOETIER_KERNEL __m512i seven_bit_signs(__m512i w) {
  const auto byte = [](__m512i v, int l) { return _mm512_and_si512(v, _mm512_set1_epi32(0x7f << (8 * l))); };
  const __m512i low = _mm512_or_si512(byte(w, 0), byte(_mm512_slli_epi32(w, 1), 1));
  const __m512i high = _mm512_or_si512(byte(_mm512_slli_epi32(w, 2), 2), byte(_mm512_slli_epi32(w, 3), 3));
  return with_parity(_mm512_or_si512(low, high));
}

struct IQ2_XXS : TwoPlanes {
  using Block = BlockIQ2_XXS;
  static constexpr int kShift = 7;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const uint64_t* grid = grids().iq2_xxs;
    d = load_scale<Block>(rows, 0.125f);
    for (int s = 0; s < 8; ++s) {
      __m512i pair[4], v[2];  // rows and signs of two groups
      load_transposed(rows, offsetof(Block, groups) + static_cast<size_t>(16 * (s / 2)), pair);
      const __m512i index = pair[2 * (s % 2)], word = pair[2 * (s % 2) + 1];
      const __m512i signs = seven_bit_signs(word), scale = odd_field<4>(word, 28);
      for (int l = 0; l < 4; ++l) {
        octets(grid, field<8>(index, 8 * l), v);
        const OctetSigns of(signs, l);
        for (int h = 0; h < 2; ++h) put_signed(v[h], scale, of.half[h], planes, 8 * s + 2 * l + h);
      }
    }
  }
};

/// The nibbles of eight bytes (two dwords), low ones first: that of sub-block k, as 2 x + 1.
MOETIER_KERNEL __m512i odd_nibble(const __m512i dwords[2], int k) {
  return odd_field<4>(dwords[k / 8], 4 * (k % 8));
}

struct IQ2_XS : TwoPlanes {
  using Block = BlockIQ2_XS;
  static constexpr int kShift = 7;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const uint64_t* grid = grids().iq2_xs;
    d = load_scale<Block>(rows, 0.125f);
    __m512i last[4], qs[4], v[2];
    load_transposed(rows, offsetof(Block, scales) - 8, last);
    for (int q = 0; q < 4; ++q) {
      load_transposed(rows, offsetof(Block, qs) + static_cast<size_t>(16 * q), qs);
      for (int j = 0; j < 4; ++j) {  // two octets, a sub-block
        const __m512i signs = with_parity(_mm512_srli_epi16(qs[j], 9)), scale = odd_nibble(last + 2, 4 * q + j);
        for (int l = 0; l < 2; ++l) {
          octets(grid, field<9>(qs[j], 16 * l), v);
          const OctetSigns of(signs, 2 * l);
          for (int h = 0; h < 2; ++h) put_signed(v[h], scale, of.half[h], planes, 16 * q + 4 * j + 2 * l + h);
        }
      }
    }
  }
};

struct IQ2_S : TwoPlanes {
  using Block = BlockIQ2_S;
  static constexpr int kShift = 7;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const uint64_t* grid = grids().iq2_s;
    d = load_scale<Block>(rows, 0.125f);
    __m512i last[4], index[8], signs[8], v[2];  // last: two dwords of upper bits, two of scales
    load_transposed(rows, offsetof(Block, high), last);
    for (size_t h = 0; h < 2; ++h) {
      load_transposed(rows, offsetof(Block, index) + 16 * h, index + 4 * h);
      load_transposed(rows, offsetof(Block, signs) + 16 * h, signs + 4 * h);
    }
    for (int n = 0; n < 32; ++n) {
      const __m512i high = _mm512_slli_epi32(field<2>(last[n / 16], 2 * (n % 16)), 8);
      octets(grid, _mm512_or_si512(field<8>(index[n / 4], 8 * (n % 4)), high), v);
      const OctetSigns of(signs[n / 4], n % 4);
      const __m512i scale = odd_nibble(last + 2, n / 2);
      for (int h = 0; h < 2; ++h) put_signed(v[h], scale, of.half[h], planes, 2 * n + h);
    }
  }
};

struct IQ3_XXS : TwoPlanes {
  using Block = BlockIQ3_XXS;
  static constexpr int kShift = 7;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const uint32_t* grid = grids().iq3_xxs;
    d = load_scale<Block>(rows, 0.25f);
    __m512i words[8], index[4];
    load_transposed(rows, offsetof(Block, signs), words);
    load_transposed(rows, offsetof(Block, signs) + 16, words + 4);
    for (int s = 0; s < 8; ++s) {
      if (s % 2 == 0) load_transposed(rows, offsetof(Block, index) + static_cast<size_t>(8 * s), index);
      const __m512i signs = seven_bit_signs(words[s]), scale = odd_field<4>(words[s], 28);
      for (int l = 0; l < 4; ++l) {
        const OctetSigns of(signs, l);
        for (int h = 0; h < 2; ++h) {
          const __m512i v = quads(grid, field<8>(index[2 * (s % 2) + l / 2], 16 * (l % 2) + 8 * h));
          put_signed(v, scale, of.half[h], planes, 8 * s + 2 * l + h);
        }
      }
    }
  }
};

/// A scale is 8 * high + low: magnitudes to 15 times a digit fit in a byte, both bytes of a word at once.
struct IQ3_S : TwoPlanes {
  using Block = BlockIQ3_S;
  static constexpr int kShift = 3;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const uint32_t* grid = grids().iq3_s;
    d = load_scale<Block>(rows, 1.0f);
    __m512i ninth[4], last[4], signs[8], index[4];
    load_transposed(rows, offsetof(Block, high), ninth);
    load_transposed(rows, offsetof(Block, scales) - 12, last);
    load_transposed(rows, offsetof(Block, signs), signs);
    load_transposed(rows, offsetof(Block, signs) + 16, signs + 4);
    for (int s = 0; s < 8; ++s) {
      if (s % 2 == 0) load_transposed(rows, offsetof(Block, index) + static_cast<size_t>(8 * s), index);
      const __m512i scale = odd_field<4>(last[3], 4 * s);
      const __m512i high = _mm512_srli_epi16(scale, 3), low = _mm512_and_si512(scale, _mm512_set1_epi16(7));
      for (int t = 0; t < 8; ++t) {
        const __m512i top = _mm512_slli_epi32(field<1>(ninth[s / 4], 8 * (s % 4) + t), 8);
        const __m512i u = quads(grid, _mm512_or_si512(field<8>(index[2 * (s % 2) + t / 4], 8 * (t % 4)), top));
        const __mmask64 of = OctetSigns(signs[s], t / 2).half[t % 2];
        put(planes.high[8 * s + t], turned(_mm512_mullo_epi16(u, high), of));
        put(planes.low[8 * s + t], turned(_mm512_mullo_epi16(u, low), of));
      }
    }
  }
};

/// The grid has 8 (g + 1), and (8 g +- 1) * scale is odd: a plane has half of what is less by one, which fits in a
/// byte.
struct IQ1 : OnePlane {
  MOETIER_KERNEL static __m512i finish(__m512i sum, int32_t code_sum) {
    return _mm512_add_epi32(_mm512_add_epi32(sum, sum), _mm512_set1_epi32(code_sum));
  }
  /// In all bytes: what is added to grid * scale / 2. `scale`: in both words.
  MOETIER_KERNEL static __m512i constant(__m512i scale, bool up) {
    // -4 * scale + (+-scale - 1) / 2
    const __m512i half = _mm512_srli_epi16(scale, 1), four = _mm512_slli_epi16(scale, 2);
    const __m512i down = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_add_epi16(half, _mm512_set1_epi16(1)));
    return in_all_bytes(_mm512_sub_epi16(up ? half : down, four));
  }
  MOETIER_KERNEL static void put_octet(__m512i index, __m512i scale, __m512i constants, Planes& planes, int n) {
    __m512i v[2];
    octets(grids().iq1, index, v);
    for (int h = 0; h < 2; ++h) {
      const __m512i half = _mm512_srli_epi16(_mm512_mullo_epi16(v[h], scale), 1);
      put(planes.low[2 * n + h], _mm512_add_epi8(half, constants));
    }
  }
};

struct IQ1_S : IQ1 {
  using Block = BlockIQ1_S;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    d = load_scale<Block>(rows, 0.125f);
    __m512i index[8], words[4];
    load_transposed(rows, offsetof(Block, index), index);
    load_transposed(rows, offsetof(Block, index) + 16, index + 4);
    load_transposed(rows, offsetof(Block, high), words);
    for (int s = 0; s < 8; ++s) {
      const __m512i word = field<16>(words[s / 2], 16 * (s % 2)), scale = odd_field<3>(word, 12);
      const __mmask16 is_down = _mm512_test_epi32_mask(word, _mm512_set1_epi32(0x8000));
      const __m512i constants = _mm512_mask_mov_epi32(constant(scale, true), is_down, constant(scale, false));
      for (int l = 0; l < 4; ++l) {
        const __m512i top = _mm512_slli_epi32(field<3>(word, 3 * l), 8);
        put_octet(_mm512_or_si512(field<8>(index[s], 8 * l), top), scale, constants, planes, 4 * s + l);
      }
    }
  }
};

struct IQ1_M : IQ1 {
  using Block = BlockIQ1_M;
  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    __m512i index[8], high[4], last[4];
    load_transposed(rows, offsetof(Block, index), index);
    load_transposed(rows, offsetof(Block, index) + 16, index + 4);
    load_transposed(rows, offsetof(Block, high), high);
    load_transposed(rows, offsetof(Block, scales) - 8, last);
    // The top nibbles of the four scale words.
    const auto nibble = [](__m512i v, int from, int to) {
      return _mm512_slli_epi32(field<4>(v, from), static_cast<unsigned>(to));
    };
    const __m512i halves = _mm512_or_si512(_mm512_or_si512(nibble(last[2], 12, 0), nibble(last[2], 28, 4)),
                                           _mm512_or_si512(nibble(last[3], 12, 8), nibble(last[3], 28, 12)));
    d = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)), _mm512_set1_ps(0.125f));
    for (int k = 0; k < 16; ++k) {
      const __m512i scale = odd_field<3>(last[2 + k / 8], 16 * (k / 4 % 2) + 3 * (k % 4));
      const __m512i up = constant(scale, true), down = constant(scale, false);
      for (int n = 2 * k; n < 2 * k + 2; ++n) {
        const __m512i four = field<4>(high[n / 8], 4 * (n % 8));
        const __mmask16 is_down = _mm512_test_epi32_mask(four, _mm512_set1_epi32(8));
        const __m512i top = _mm512_slli_epi32(_mm512_and_si512(four, _mm512_set1_epi32(7)), 8);
        const __m512i row = _mm512_or_si512(field<8>(index[n / 4], 8 * (n % 4)), top);
        put_octet(row, scale, _mm512_mask_mov_epi32(up, is_down, down), planes, n);
      }
    }
  }
};

}  // namespace
}  // namespace moetier::avx512
