// How super-blocks of the K types of sixteen rows are decoded with AVX-512. Only for files named *_avx512.cpp and
// *_amx.cpp, which each have their own copy.
#pragma once

#include "compute/cpu/dot_avx512.h"
#include "quant/blocks.h"

namespace moetier::avx512 {
namespace {

constexpr int kSuperBlocksPerSegment = 2;

/// For each dword lane: its bytes kLow and kHigh (0-3) as two words, sign-extended or not.
template <int kLow, int kHigh, bool kSigned = false>
MOETIER_KERNEL __m512i bytes_to_words(__m512i v) {
  constexpr auto kIndex = [](int byte, int lane) { return static_cast<char>(4 * lane + byte); };
  const __m128i pattern =
      _mm_setr_epi8(-1, kIndex(kLow, 0), -1, kIndex(kHigh, 0), -1, kIndex(kLow, 1), -1, kIndex(kHigh, 1),  //
                    -1, kIndex(kLow, 2), -1, kIndex(kHigh, 2), -1, kIndex(kLow, 3), -1, kIndex(kHigh, 3));
  const __m512i high = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(pattern));
  return kSigned ? _mm512_srai_epi16(high, 8) : _mm512_srli_epi16(high, 8);
}

/// A super-block of sixteen weight rows: codes times scales in two planes, vector i with columns 4i to 4i + 3.
struct Planes {
  alignas(64) uint8_t high[64][64];
  alignas(64) uint8_t low[64][64];
};

MOETIER_KERNEL const Codes256& block_of(const std::byte* x, int64_t b) {
  return reinterpret_cast<const Codes256*>(x)[b];
}

// --- Q4_K and Q5_K ---

/// What stands at the start of the rows' blocks.
struct ScalesMinsOf16 {
  __m512 d, dmin;
  __m512i scales03, scales47;  ///< a byte for each sub-block
  __m512i mins[4];             ///< mins of sub-blocks 2i and 2i + 1, as words

  MOETIER_KERNEL explicit ScalesMinsOf16(const Rows16& rows) {
    __m512i v[4];
    load_transposed(rows, 0, v);
    halves_to_floats(v[0], d, dmin);
    // The same unpacking as unpack_scales_mins(), for sixteen rows.
    const __m512i six = _mm512_set1_epi8(0x3f), nibble = _mm512_set1_epi8(0x0f), top = _mm512_set1_epi8(0x30);
    const auto join = [&](__m512i low, __m512i high) {
      return _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(_mm512_srli_epi16(high, 2), top));
    };
    scales03 = _mm512_and_si512(v[1], six), scales47 = join(v[3], v[1]);
    const __m512i mins03 = _mm512_and_si512(v[2], six), mins47 = join(_mm512_srli_epi16(v[3], 4), v[2]);
    mins[0] = bytes_to_words<0, 1>(mins03), mins[1] = bytes_to_words<2, 3>(mins03);
    mins[2] = bytes_to_words<0, 1>(mins47), mins[3] = bytes_to_words<2, 3>(mins47);
  }

  template <int kSubBlock>
  MOETIER_KERNEL __m512 scale() const {
    const __m512i bytes = _mm512_srli_epi32(kSubBlock < 4 ? scales03 : scales47, 8 * (kSubBlock % 4));
    return _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(255)));
  }

  /// flush(d*a) * float(total) - flush(dmin*a) * float(sum of min * sum c).
  MOETIER_KERNEL __m512 term(const Codes256& x, __m512i total) const {
    __m512i min_sum = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) min_sum = _mm512_dpwssd_epi32(min_sum, mins[i], broadcast4(x.sums32 + 2 * i));
    const __m512 a = _mm512_set1_ps(x.scale);
    return _mm512_sub_ps(scaled(d, a, total), scaled(dmin, a, min_sum));
  }
};

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr int kPairs = 2;  ///< pairs of sub-blocks whose scaled sums float32 holds exactly
  struct FifthBits {
    MOETIER_KERNEL explicit FifthBits(const Rows16&) {}
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m512i*) const {}
  };
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr int kPairs = 1;
  struct FifthBits {
    __m512i bits[8];  ///< bit k: the fifth bit of sub-block k's weight
    MOETIER_KERNEL explicit FifthBits(const Rows16& rows) {
      load_transposed(rows, offsetof(Block, qh), bits);
      load_transposed(rows, offsetof(Block, qh) + 16, bits + 4);
    }
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m512i* u) const {
      const __m512i sixteen = _mm512_set1_epi8(16);
      for (int j = 0; j < 8; ++j) {
        const __m512i moved = kSubBlock < 4 ? _mm512_slli_epi16(bits[j], kSubBlock < 4 ? 4 - kSubBlock : 0)
                                            : _mm512_srli_epi16(bits[j], kSubBlock < 4 ? 0 : kSubBlock - 4);
        u[j] = _mm512_ternarylogic_epi32(u[j], moved, sixteen, 0xf8);  // u | (moved & sixteen)
      }
    }
  };
};

// --- Q6_K ---

struct Q6_K {
  using Block = BlockQ6_K;
};

/// Half kHalf (16 columns of each of the four planes) of the 128 weights number kH, sub-blocks 8 kH + 2 p + kHalf:
/// u[4 * p + j] has columns 4j to 4j + 3 of sub-block p, as codes from 0 to 63.
template <int kH, int kHalf>
MOETIER_KERNEL void load_planes(const Rows16& rows, __m512i u[16]) {
  const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8(0x30);
  __m512i a[4], c[4], h[4];
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 16 * kHalf, a);
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 32 + 16 * kHalf, c);
  load_transposed(rows, offsetof(BlockQ6_K, qh) + 32 * kH + 16 * kHalf, h);
  // (v & low) | (top & high)
  const auto join = [&](__m512i v, __m512i top) {
    return _mm512_ternarylogic_epi32(_mm512_and_si512(v, low), top, high, 0xf8);
  };
  for (int j = 0; j < 4; ++j) {
    u[j] = join(a[j], _mm512_slli_epi16(h[j], 4));
    u[j + 4] = join(c[j], _mm512_slli_epi16(h[j], 2));
    u[j + 8] = join(_mm512_srli_epi16(a[j], 4), h[j]);
    u[j + 12] = join(_mm512_srli_epi16(c[j], 4), _mm512_srli_epi16(h[j], 2));
  }
}

/// The scales of these sub-blocks as int32, from the sixteen bytes of all rows.
template <int kH, int kHalf>
MOETIER_KERNEL void load_scales(const __m512i scale_bytes[4], __m512i scales[4]) {
  // p = 0, 1 in dword 2 kH, p = 2, 3 in the next.
  for (int p = 0; p < 4; ++p) {
    const auto left = static_cast<unsigned>(24 - 8 * (2 * (p % 2) + kHalf));
    scales[p] = _mm512_srai_epi32(_mm512_slli_epi32(scale_bytes[2 * kH + p / 2], left), 24);
  }
}

}  // namespace
}  // namespace moetier::avx512
