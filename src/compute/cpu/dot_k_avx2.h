// AVX2 dots of the K types: super-blocks of 256 weights with integer sub-scales, which are multiplied in where pair
// sums are widened to int32 (with VNNI: where a sub-block's int32 sum is complete). Only for files named *_avx2.cpp and
// *_avxvnni.cpp, which each have their own copy.
#pragma once

#include <type_traits>

#include "compute/cpu/dot_avx2.h"
#include "quant/blocks.h"

namespace moetier::MOETIER_AVX2_UNIT {
namespace {

constexpr int kSuperBlocksPerSegment = 2;

/// For each dword lane: its bytes `low` and `high` (0-3, or -1 for zero) as the low bytes of two words.
template <int kLow, int kHigh>
MOETIER_KERNEL __m256i bytes_to_words(__m256i v) {
  constexpr auto kIndex = [](int byte, int lane) { return static_cast<char>(byte < 0 ? -1 : 4 * lane + byte); };
  const __m128i pattern =
      _mm_setr_epi8(kIndex(kLow, 0), -1, kIndex(kHigh, 0), -1, kIndex(kLow, 1), -1, kIndex(kHigh, 1), -1,
                    kIndex(kLow, 2), -1, kIndex(kHigh, 2), -1, kIndex(kLow, 3), -1, kIndex(kHigh, 3), -1);
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(pattern));
}

/// Byte kByte as what a sub-block's sum is multiplied with.
template <int kByte>
MOETIER_KERNEL __m256i scale_of(__m256i v) {
#if defined(MOETIER_VNNI)
  return bytes_to_words<kByte, -1>(v);
#else
  return bytes_to_words<kByte, kByte>(v);
#endif
}

/// bytes_to_words() for signed bytes.
template <int kLow, int kHigh>
MOETIER_KERNEL __m256i signed_bytes_to_words(__m256i v) {
  constexpr auto kIndex = [](int byte, int lane) { return static_cast<char>(4 * lane + byte); };
  const __m128i pattern =
      _mm_setr_epi8(-1, kIndex(kLow, 0), -1, kIndex(kHigh, 0), -1, kIndex(kLow, 1), -1, kIndex(kHigh, 1),  //
                    -1, kIndex(kLow, 2), -1, kIndex(kHigh, 2), -1, kIndex(kLow, 3), -1, kIndex(kHigh, 3));
  return _mm256_srai_epi16(_mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(pattern)), 8);
}

/// scale_of() for signed bytes.
template <int kByte>
MOETIER_KERNEL __m256i signed_scale_of(__m256i v) {
#if defined(MOETIER_VNNI)
  return _mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * kByte), 24);
#else
  return signed_bytes_to_words<kByte, kByte>(v);
#endif
}

// --- Q4_K and Q5_K ---

/// What stands at the start of the eight rows' blocks.
struct ScalesMinsOf8 {
  __m256 d, dmin;
  __m256i scales[8];  ///< sub-block k's scale as a pair of words (with VNNI: as an int32)
  __m256i mins[4];    ///< mins of sub-blocks 2i and 2i + 1

  MOETIER_KERNEL explicit ScalesMinsOf8(const Rows8& rows) {
    __m256i v[4];
    load_transposed(rows, 0, v);
    halves_to_floats(v[0], d, dmin);
    // The same unpacking as unpack_scales_mins(), for eight rows.
    const __m256i six = _mm256_set1_epi8(0x3f), nibble = _mm256_set1_epi8(0x0f), top = _mm256_set1_epi8(0x30);
    const auto join = [&](__m256i low, __m256i high) {
      return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(_mm256_srli_epi16(high, 2), top));
    };
    const __m256i scales03 = _mm256_and_si256(v[1], six), scales47 = join(v[3], v[1]);
    const __m256i mins03 = _mm256_and_si256(v[2], six), mins47 = join(_mm256_srli_epi16(v[3], 4), v[2]);
    scales[0] = scale_of<0>(scales03), scales[1] = scale_of<1>(scales03);
    scales[2] = scale_of<2>(scales03), scales[3] = scale_of<3>(scales03);
    scales[4] = scale_of<0>(scales47), scales[5] = scale_of<1>(scales47);
    scales[6] = scale_of<2>(scales47), scales[7] = scale_of<3>(scales47);
    mins[0] = bytes_to_words<0, 1>(mins03), mins[1] = bytes_to_words<2, 3>(mins03);
    mins[2] = bytes_to_words<0, 1>(mins47), mins[3] = bytes_to_words<2, 3>(mins47);
  }

  /// flush(d*a) * float(total) - flush(dmin*a) * float(sum of min * sum c).
  template <bool kFlush>
  MOETIER_KERNEL __m256 term(const Codes256& x, __m256i total) const {
    __m256i min_sum = _mm256_madd_epi16(mins[0], broadcast4(x.sums32));
    for (int i = 1; i < 4; ++i) {
      min_sum = _mm256_add_epi32(min_sum, _mm256_madd_epi16(mins[i], broadcast4(x.sums32 + 2 * i)));
    }
    const __m256 a = _mm256_set1_ps(x.scale);
    return _mm256_sub_ps(scaled<kFlush>(d, a, total), scaled<kFlush>(dmin, a, min_sum));
  }
};

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr int kSums = 8;  ///< pair sums that fit in int16
  struct FifthBits {
    MOETIER_KERNEL explicit FifthBits(const Rows8&) {}
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m256i*) const {}
  };
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr int kSums = 4;
  struct FifthBits {
    __m256i bits[8];  ///< bit k: the fifth bit of sub-block k's weight
    MOETIER_KERNEL explicit FifthBits(const Rows8& rows) {
      load_transposed(rows, offsetof(Block, qh), bits);
      load_transposed(rows, offsetof(Block, qh) + 16, bits + 4);
    }
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m256i* u) const {
      const __m256i sixteen = _mm256_set1_epi8(16);
      for (int j = 0; j < 8; ++j) {
        const __m256i moved = kSubBlock < 4 ? _mm256_slli_epi16(bits[j], 4 - kSubBlock < 0 ? 0 : 4 - kSubBlock)
                                            : _mm256_srli_epi16(bits[j], kSubBlock < 4 ? 0 : kSubBlock - 4);
        u[j] = _mm256_or_si256(u[j], _mm256_and_si256(moved, sixteen));
      }
    }
  };
};

/// Adds the dots of sub-block kSubBlock, in `u`, to the totals of all activation rows.
template <typename T, int kSubBlock>
MOETIER_KERNEL void add_sub_block(const __m256i u[8], __m256i scale, const std::byte* const* x, int64_t b, int count,
                                  __m256i* totals) {
  for (int t = 0; t < count; ++t) {
    const int8_t* codes = block_of(x[t], b).codes + 32 * kSubBlock;
#if defined(MOETIER_VNNI)
    const __m256i sum = add_dots<8>(_mm256_setzero_si256(), u, codes);
    totals[t] = _mm256_add_epi32(totals[t], _mm256_mullo_epi32(sum, scale));
#else
    for (int j = 0; j < 8; j += T::kSums) {
      const __m256i pairs = pair_sums<T::kSums>(u + j, codes + 4 * j);
      totals[t] = _mm256_add_epi32(totals[t], widen_sums(pairs, scale));
    }
#endif
  }
}

/// The sub-blocks 2 * kPair (low nibbles) and 2 * kPair + 1 (high nibbles).
template <typename T, int kPair>
MOETIER_KERNEL void add_pair(const Rows8& rows, const ScalesMinsOf8& head, const typename T::FifthBits& fifth,
                             const std::byte* const* x, int64_t b, int count, __m256i* totals, Ahead ahead) {
  constexpr size_t kBytes = 8 * sizeof(typename T::Block);
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i packed[8], u[8];
  prefetch_part<2 * kPair, 8, kBytes>(ahead);
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair, packed);
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair + 16, packed + 4);
  for (int j = 0; j < 8; ++j) u[j] = _mm256_and_si256(packed[j], mask);
  fifth.template add<2 * kPair>(u);
  add_sub_block<T, 2 * kPair>(u, head.scales[2 * kPair], x, b, count, totals);
  prefetch_part<2 * kPair + 1, 8, kBytes>(ahead);
  for (int j = 0; j < 8; ++j) u[j] = _mm256_and_si256(_mm256_srli_epi16(packed[j], 4), mask);
  fifth.template add<2 * kPair + 1>(u);
  add_sub_block<T, 2 * kPair + 1>(u, head.scales[2 * kPair + 1], x, b, count, totals);
}

/// Adds one super-block's terms to the segments.
template <typename T, bool kFlush>
MOETIER_KERNEL void add_block_k45(const Rows8& rows, Ahead ahead, const std::byte* const* x, int64_t b, int count,
                                  __m256i* totals, __m256* segment) {
  const ScalesMinsOf8 head(rows);
  const typename T::FifthBits fifth(rows);
  for (int t = 0; t < count; ++t) totals[t] = _mm256_setzero_si256();
  add_pair<T, 0>(rows, head, fifth, x, b, count, totals, ahead);
  add_pair<T, 1>(rows, head, fifth, x, b, count, totals, ahead);
  add_pair<T, 2>(rows, head, fifth, x, b, count, totals, ahead);
  add_pair<T, 3>(rows, head, fifth, x, b, count, totals, ahead);
  for (int t = 0; t < count; ++t)
    segment[t] = _mm256_add_ps(segment[t], head.template term<kFlush>(block_of(x[t], b), totals[t]));
}

// --- Q6_K ---

struct Q6_K {
  using Block = BlockQ6_K;
};

/// A sub-block of 16 columns: u (four vectors) with codes from `column` on, and the scale of the sub-block as word
/// pairs. Two pair sums of codes up to 63 fit in int16.
MOETIER_KERNEL __m256i sum16(const __m256i* u, const int8_t* codes, __m256i scale) {
#if defined(MOETIER_VNNI)
  return _mm256_mullo_epi32(add_dots<4>(_mm256_setzero_si256(), u, codes), scale);
#else
  return _mm256_add_epi32(widen_sums(pair_sums<2>(u, codes), scale), widen_sums(pair_sums<2>(u + 2, codes + 8), scale));
#endif
}

/// Half kHalf (16 columns of each of the four planes) of the 128 weights number kH: sub-blocks 8 kH + 2 p + kHalf.
template <int kH, int kHalf>
MOETIER_KERNEL void add_planes(const Rows8& rows, Ahead ahead, const __m256i scale_bytes[4], const std::byte* const* x,
                               int64_t b, int count, __m256i* totals) {
  constexpr size_t kBytes = 8 * sizeof(BlockQ6_K);
  prefetch_part<4 * kH + 2 * kHalf, 8, kBytes>(ahead);
  const __m256i low = _mm256_set1_epi8(0x0f), high = _mm256_set1_epi8(0x30);
  __m256i a[4], c[4], h[4], u[8];
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 16 * kHalf, a);
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 32 + 16 * kHalf, c);
  load_transposed(rows, offsetof(BlockQ6_K, qh) + 32 * kH + 16 * kHalf, h);
  // Sub-blocks 8 kH + 2 p + kHalf: p = 0, 1 in dword 2 kH of the scales, p = 2, 3 in the next.
  const auto add = [&](__m256i scale0, __m256i scale1, int p) {
    for (int t = 0; t < count; ++t) {
      const int8_t* codes = block_of(x[t], b).codes + 128 * kH + 32 * p + 16 * kHalf;
      const __m256i sum = _mm256_add_epi32(sum16(u, codes, scale0), sum16(u + 4, codes + 32, scale1));
      totals[t] = _mm256_add_epi32(totals[t], sum);
    }
  };
  for (int j = 0; j < 4; ++j) {
    u[j] = _mm256_or_si256(_mm256_and_si256(a[j], low), _mm256_and_si256(_mm256_slli_epi16(h[j], 4), high));
    u[j + 4] = _mm256_or_si256(_mm256_and_si256(c[j], low), _mm256_and_si256(_mm256_slli_epi16(h[j], 2), high));
  }
  add(signed_scale_of<kHalf>(scale_bytes[2 * kH]), signed_scale_of<2 + kHalf>(scale_bytes[2 * kH]), 0);
  prefetch_part<4 * kH + 2 * kHalf + 1, 8, kBytes>(ahead);
  for (int j = 0; j < 4; ++j) {
    u[j] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a[j], 4), low), _mm256_and_si256(h[j], high));
    u[j + 4] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(c[j], 4), low),
                               _mm256_and_si256(_mm256_srli_epi16(h[j], 2), high));
  }
  add(signed_scale_of<kHalf>(scale_bytes[2 * kH + 1]), signed_scale_of<2 + kHalf>(scale_bytes[2 * kH + 1]), 2);
}

/// sum u*c less 32 * sum of scale * sum c: the codes are stored with an offset.
MOETIER_KERNEL __m256i without_offset(__m256i total, const __m256i scale_pairs[8], const Codes256& x) {
  __m256i sum = _mm256_madd_epi16(scale_pairs[0], broadcast4(x.sums16));
  for (int i = 1; i < 8; ++i) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(scale_pairs[i], broadcast4(x.sums16 + 2 * i)));
  }
  return _mm256_sub_epi32(total, _mm256_slli_epi32(sum, 5));
}

template <bool kFlush>
MOETIER_KERNEL void add_block_k6(const Rows8& rows, Ahead ahead, const std::byte* const* x, int64_t b, int count,
                                 __m256i* totals, __m256* segment) {
  __m256i scale_bytes[4], scale_pairs[8];
  load_transposed(rows, offsetof(BlockQ6_K, scales), scale_bytes);
  const __m256 d = _mm256_cvtph_ps(gather16(rows, offsetof(BlockQ6_K, d)));
  for (int i = 0; i < 4; ++i) {
    scale_pairs[2 * i] = signed_bytes_to_words<0, 1>(scale_bytes[i]);
    scale_pairs[2 * i + 1] = signed_bytes_to_words<2, 3>(scale_bytes[i]);
  }
  for (int t = 0; t < count; ++t) totals[t] = _mm256_setzero_si256();
  add_planes<0, 0>(rows, ahead, scale_bytes, x, b, count, totals);
  add_planes<0, 1>(rows, ahead, scale_bytes, x, b, count, totals);
  add_planes<1, 0>(rows, ahead, scale_bytes, x, b, count, totals);
  add_planes<1, 1>(rows, ahead, scale_bytes, x, b, count, totals);
  for (int t = 0; t < count; ++t) {
    const Codes256& codes = block_of(x[t], b);
    const __m256 term = scaled<kFlush>(d, _mm256_set1_ps(codes.scale), without_offset(totals[t], scale_pairs, codes));
    segment[t] = _mm256_add_ps(segment[t], term);
  }
}

// --- the loop ---

template <typename T, bool kOne, bool kFlush>
MOETIER_KERNEL void panel256(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                             float (*sums)[8]) {
  constexpr int kRows = kOne ? 1 : kDotTile;
  constexpr size_t kBytes = sizeof(typename T::Block);
  const int count = kOne ? 1 : n;
  __m256 total[kRows], segment[kRows];
  __m256i integers[kRows];
  for (int t = 0; t < count; ++t) total[t] = segment[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    if constexpr (std::is_same_v<T, Q6_K>) {
      add_block_k6<kFlush>(rows, ahead, x, b, count, integers, segment);
    } else {
      add_block_k45<T, kFlush>(rows, ahead, x, b, count, integers, segment);
    }
    rows.advance(kBytes);
    ahead += 8 * kBytes;
    if ((b + 1) % kSuperBlocksPerSegment != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < count; ++t) {
      total[t] = _mm256_add_ps(total[t], segment[t]);
      segment[t] = _mm256_setzero_ps();
    }
  }
  for (int t = 0; t < count; ++t) _mm256_store_ps(sums[t], total[t]);
}

template <typename T, DotFn DotTable::*kPortable>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 256;
  const bool flush = needs_flush<Codes256>(x, n, blocks, last - first);
  for_panels(w, first, last, out, n, [&](const Rows8& rows, Ahead ahead, float(*sums)[8]) {
    if (n == 1) {
      panel256<T, true, true>(rows, blocks, ahead, x, n, sums);
    } else if (flush) {
      panel256<T, false, true>(rows, blocks, ahead, x, n, sums);
    } else {
      panel256<T, false, false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

MOETIER_KERNEL void put_k_dots(DotTable& table) {
  table.q4_k = dot256<Q4_K, &DotTable::q4_k>;
  table.q5_k = dot256<Q5_K, &DotTable::q5_k>;
  table.q6_k = dot256<Q6_K, &DotTable::q6_k>;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
