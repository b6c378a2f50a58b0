// AVX2 dots of the types below four bits and their relatives (256 weights in a block).
//
// One activation row: each weight row's block is decoded to vectors of 32 codes, multiplied and scaled at once; the
// int32 lanes of eight rows are then added up together. More activation rows: eight rows' codes are decoded to a
// scratch in the first-level cache, transposed as dot_avx2.h describes, and multiplied with all of them.
// Only for files named *_avx2.cpp, *_avxvnni.cpp and dot_vnni_avx512.cpp, which each have their own copy.
#pragma once

#include <utility>

#include "compute/cpu/dot_avx2.h"
#include "compute/cpu/row_blocks_avx2.h"

namespace moetier::MOETIER_AVX2_UNIT {
namespace {

constexpr int kSegmentBlocks256 = 2;

template <typename T>
constexpr bool kHasMins = std::is_same_v<T, RowQ2K>;

template <typename T>
MOETIER_KERNEL const typename T::Block& row_block(const Rows8& rows, int r) {
  return *reinterpret_cast<const typename T::Block*>(rows.row0 + static_cast<size_t>(r) * rows.stride);
}

/// The scales of the eight rows' blocks.
template <typename T>
MOETIER_KERNEL __m256 block_scales(const Rows8& rows) {
  __m128i halves;
  if constexpr (std::is_same_v<T, RowIQ1M>) {
    alignas(16) uint16_t d[8];
    for (int r = 0; r < 8; ++r) d[r] = iq1_m_scale(row_block<T>(rows, r));
    halves = _mm_load_si128(reinterpret_cast<const __m128i*>(d));
  } else {
    halves = gather16(rows, offsetof(typename T::Block, d));
  }
  return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(T::kUnit));
}

// --- one activation row ---

/// Words 2 s (low half) and 2 s + 1 (high half), each everywhere in its half, from even_and_odd() words: twice in a
/// dword, or, for dwords, once with zero above.
template <int s, bool kTwice>
MOETIER_KERNEL __m256i scale_of_group(__m256i even_and_odd) {
  constexpr int kWord = 2 * s | (2 * s + 1) << 8;
  return _mm256_shuffle_epi8(even_and_odd,
                             _mm256_set1_epi32(kTwice ? kWord | kWord << 16 : kWord | static_cast<int>(0x80800000u)));
}
/// The even words of 16 in the low half, the odd ones in the high half.
MOETIER_KERNEL __m256i even_and_odd(__m256i words) {
  const __m256i pattern = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, pattern), 0xd8);
}

/// Unsigned codes of group s and the activations that go with them.
struct GroupProducts {
  __m256i u, x;
};
template <int s, typename T>
MOETIER_KERNEL GroupProducts group_products(const T& row, const int8_t* codes) {
  const __m256i x = load256(codes + 32 * s);
  if constexpr (T::kKind == CodeKind::offset) {
    return {row.template codes<s>(), x};
  } else if constexpr (T::kKind == CodeKind::masked) {
    const __m256i mask = row.template mask<s>();
    return {row.template codes<s>(), _mm256_sub_epi8(_mm256_xor_si256(x, mask), mask)};
  } else {
    const __m256i q = row.template codes<s>();
    return {_mm256_abs_epi8(q), _mm256_sign_epi8(x, q)};
  }
}

/// sum + group s times its scales.
template <int s, typename T>
MOETIER_KERNEL __m256i add_group(const T& row, __m256i sum, const int8_t* codes, __m256i scales) {
  const GroupProducts g = group_products<s>(row, codes);
#if defined(MOETIER_VNNI)
  // Magnitudes to 64: four products fit in a word.
  if constexpr (T::kKind != CodeKind::table) {
    return dot2(sum, dot4(_mm256_setzero_si256(), g.u, g.x), scale_of_group<s, false>(scales));
  }
#endif
  return dot2(sum, _mm256_maddubs_epi16(g.u, g.x), scale_of_group<s, true>(scales));
}

template <typename T, int... s>
MOETIER_KERNEL __m256i add_groups(const T& row, __m256i sum, const int8_t* codes, std::integer_sequence<int, s...>) {
  if constexpr (T::kScaled) {
    const __m256i scales = even_and_odd(row.scales());
    ((sum = add_group<s>(row, sum, codes, scales)), ...);
    return sum;
  } else {
    // Ternary codes: the pair sums of the whole block fit in int16.
    const auto pairs = [](const GroupProducts& g) { return _mm256_maddubs_epi16(g.u, g.x); };
    __m256i all = _mm256_setzero_si256();
    ((all = _mm256_add_epi16(all, pairs(group_products<s>(row, codes)))), ...);
    return dot2(sum, all, _mm256_set1_epi16(1));
  }
}

/// The integer sum of one row's block, spread over eight lanes. `without` are the activations' sums16
/// times -kOffset.
template <typename T>
MOETIER_KERNEL __m256i row_sum(const T& row, const int8_t* codes, __m256i without) {
  __m256i sum = _mm256_setzero_si256();
  if constexpr (T::kKind == CodeKind::offset && T::kOffset > 0) {
    if constexpr (T::kScaled) {
      sum = _mm256_madd_epi16(row.scales(), without);
    } else {
      sum = _mm256_madd_epi16(_mm256_set1_epi16(1), without);
    }
  }
  return add_groups(row, sum, codes, std::make_integer_sequence<int, 8>());
}

/// The sums of the lanes of eight vectors.
MOETIER_KERNEL __m256i add_lanes(const __m256i v[8]) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

template <typename T>
MOETIER_KERNEL __m256 one_term(const Rows8& rows, const Grids& grids, const Codes256& x) {
  __m256i lanes[8], mins[8];
  const __m256i sums = load256(x.sums16);
  const __m256i without = _mm256_mullo_epi16(sums, _mm256_set1_epi16(static_cast<int16_t>(-T::kOffset)));
  for (int r = 0; r < 8; ++r) {
    const T row(row_block<T>(rows, r), grids);
    lanes[r] = row_sum(row, x.codes, without);
    if constexpr (kHasMins<T>) mins[r] = _mm256_madd_epi16(row.mins(), sums);
  }
  const __m256 a = _mm256_set1_ps(x.scale);
  const __m256 term = scaled(block_scales<T>(rows), a, add_lanes(lanes));
  if constexpr (kHasMins<T>) {
    const __m256 dmin = _mm256_cvtph_ps(gather16(rows, offsetof(typename T::Block, dmin)));
    return _mm256_sub_ps(term, scaled(dmin, a, add_lanes(mins)));
  } else {
    return term;
  }
}

template <typename T>
MOETIER_KERNEL void panel_one(Rows8 rows, const Grids& grids, int64_t blocks, Ahead ahead, const std::byte* x,
                              float* sums) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m256 total = _mm256_setzero_ps(), segment = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    segment = _mm256_add_ps(segment, one_term<T>(rows, grids, block_of(x, b)));
    rows.advance(kBytes);
    if ((b + 1) % kSegmentBlocks256 != 0 && b + 1 != blocks) continue;
    total = _mm256_add_ps(total, segment);
    segment = _mm256_setzero_ps();
  }
  _mm256_store_ps(sums, total);
}

// --- many ---

/// Eight rows' blocks as integers.
struct Scratch {
  alignas(32) uint8_t codes[8][256];  ///< with the offset; signed for CodeKind::table
  alignas(32) int16_t scales[8][16];
  alignas(32) int16_t mins[8][16];
};

/// Codes are decoded with the offset in them; AVX2 alone takes a table's values as they are, with their sign.
template <typename T>
constexpr bool kWithOffset =
#if defined(MOETIER_VNNI)
    T::kOffset > 0;
#else
    T::kOffset > 0 && T::kKind != CodeKind::table;
#endif

template <typename T, int... s>
MOETIER_KERNEL void decode_codes(const T& row, uint8_t* codes, std::integer_sequence<int, s...>) {
  const auto group = [&]<int g>(std::integral_constant<int, g>) {
    __m256i q = row.template codes<g>();
    if constexpr (T::kKind == CodeKind::masked) {
      const __m256i mask = row.template mask<g>();
      q = _mm256_sub_epi8(_mm256_xor_si256(q, mask), mask);
      q = _mm256_add_epi8(q, _mm256_set1_epi8(static_cast<char>(T::kOffset)));
    } else if constexpr (T::kKind == CodeKind::table && kWithOffset<T>) {
      q = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes + 32 * g), q);
  };
  (group(std::integral_constant<int, s>()), ...);
}

template <typename T>
MOETIER_KERNEL void decode_panel(const Rows8& rows, const Grids& grids, Scratch& scratch) {
  for (int r = 0; r < 8; ++r) {
    const T row(row_block<T>(rows, r), grids);
    decode_codes(row, scratch.codes[r], std::make_integer_sequence<int, 8>());
    if constexpr (T::kScaled) _mm256_store_si256(reinterpret_cast<__m256i*>(scratch.scales[r]), row.scales());
    if constexpr (kHasMins<T>) _mm256_store_si256(reinterpret_cast<__m256i*>(scratch.mins[r]), row.mins());
  }
}

/// pairs[i] = words 2 i and 2 i + 1 of all eight rows.
MOETIER_KERNEL void load_pairs(const int16_t (&words)[8][16], __m256i pairs[8]) {
  const Rows8 rows(reinterpret_cast<const std::byte*>(words), sizeof(words[0]));
  load_transposed(rows, 0, pairs);
  load_transposed(rows, 16, pairs + 4);
}

/// Sum over the 16 sub-blocks of words times sums of codes.
MOETIER_KERNEL __m256i sum_of_sums(const __m256i pairs[8], const Codes256& x) {
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 8; ++i) sum = dot2(sum, pairs[i], broadcast4(x.sums16 + 2 * i));
  return sum;
}

/// How a sub-block's scale is applied: to words, in pairs, before they are added up in a dword; or (VNNI) to dwords, as
/// a word with zero above where the dwords are words, too, else as dwords.
enum class Scaling : uint8_t { pairs, words, dwords };

/// The largest sum of so many products with codes to `largest` fits in a word.
constexpr bool fits(int products, int largest) {
  return products * largest * 127 < 1 << 15;
}

/// Columns of a sub-block that are added up before the scale is applied.
template <typename T>
constexpr int kColumnsAtOnce =
#if defined(MOETIER_VNNI)
    !fits(8, T::kLargest) || fits(16, T::kLargest) ? 16 : 8;
#else
    fits(8, T::kLargest) ? 16 : 4;
#endif

template <typename T>
constexpr Scaling kScaling =
#if defined(MOETIER_VNNI)
    fits(8, T::kLargest) ? Scaling::words : Scaling::dwords;
#else
    Scaling::pairs;
#endif

/// Word kOdd of each dword as kScaling<T> wants it.
template <typename T, int kOdd>
MOETIER_KERNEL __m256i scale_of_sub_block(__m256i pair) {
  if constexpr (kScaling<T> == Scaling::pairs) {
    constexpr int kBytes = kOdd == 0 ? 0x01000100 : 0x03020302;
    const __m256i lanes =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(pair, _mm256_add_epi8(lanes, _mm256_set1_epi32(kBytes)));
  } else if constexpr (kScaling<T> == Scaling::words) {
    return kOdd == 0 ? _mm256_and_si256(pair, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(pair, 16);
  } else {
    return _mm256_srai_epi32(kOdd == 0 ? _mm256_slli_epi32(pair, 16) : pair, 16);
  }
}

/// total + a sub-block of 16 columns times its scale.
template <typename T>
MOETIER_KERNEL __m256i add_sub_block(__m256i total, const __m256i v[4], const int8_t* codes, __m256i scale) {
#if defined(MOETIER_VNNI)
  constexpr int kVectors = kColumnsAtOnce<T> / 4;
  for (int j = 0; j < 4; j += kVectors) {
    const __m256i sum = add_dots<kVectors>(_mm256_setzero_si256(), v + j, codes + 4 * j);
    if constexpr (kScaling<T> == Scaling::words) {
      total = dot2(total, sum, scale);
    } else {
      total = _mm256_add_epi32(total, _mm256_mullo_epi32(sum, scale));
    }
  }
  return total;
#else
  if constexpr (T::kKind == CodeKind::table) {
    const auto four = [&](int j) {
      const __m256i turned = _mm256_sign_epi8(broadcast4(codes + 4 * j), v[j]);
      return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(v[j]), turned), scale);
    };
    const __m256i all = _mm256_add_epi32(_mm256_add_epi32(four(0), four(1)), _mm256_add_epi32(four(2), four(3)));
    return _mm256_add_epi32(total, all);
  } else {
    constexpr int kVectors = kColumnsAtOnce<T> / 4;
    __m256i sum = _mm256_madd_epi16(pair_sums<kVectors>(v, codes), scale);
    for (int j = kVectors; j < 4; j += kVectors) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair_sums<kVectors>(v + j, codes + 4 * j), scale));
    }
    return _mm256_add_epi32(total, sum);
  }
#endif
}

template <typename T>
MOETIER_KERNEL __m256i add_two_sub_blocks(__m256i total, const __m256i v[8], const int8_t* codes, __m256i even,
                                          __m256i odd) {
  if constexpr (!T::kScaled) {  // ternary types
#if defined(MOETIER_VNNI)
    return _mm256_add_epi32(total, add_dots<8>(_mm256_setzero_si256(), v, codes));
#else
    return dot2(total, pair_sums<8>(v, codes), even);
#endif
  }
  return add_sub_block<T>(add_sub_block<T>(total, v, codes, even), v + 4, codes + 16, odd);
}

template <typename T>
MOETIER_KERNEL void add_block(const Rows8& rows, const Grids& grids, Scratch& scratch, const std::byte* const* x,
                              int64_t b, int count, __m256i* totals, __m256* segment) {
  decode_panel<T>(rows, grids, scratch);
  __m256i scales[8], mins[8];
  for (__m256i& pair : scales) pair = _mm256_set1_epi16(1);
  if constexpr (T::kScaled) load_pairs(scratch.scales, scales);
  if constexpr (kHasMins<T>) load_pairs(scratch.mins, mins);
  // Less the offset of the codes.
  for (int t = 0; t < count; ++t) {
    totals[t] = _mm256_setzero_si256();
    if constexpr (kWithOffset<T>) {
      const __m256i sum = sum_of_sums(scales, block_of(x[t], b));
      totals[t] = _mm256_mullo_epi32(sum, _mm256_set1_epi32(-T::kOffset));
    }
  }
  const Rows8 codes(reinterpret_cast<const std::byte*>(scratch.codes), sizeof(scratch.codes[0]));
  // Two sub-blocks at a time, so that totals are loaded and stored half as often.
  for (int k = 0; k < 16; k += 2) {
    __m256i v[8];
    load_transposed(codes, static_cast<size_t>(16 * k), v);
    load_transposed(codes, static_cast<size_t>(16 * k + 16), v + 4);
    const __m256i even = scale_of_sub_block<T, 0>(scales[k / 2]), odd = scale_of_sub_block<T, 1>(scales[k / 2]);
    for (int t = 0; t < count; ++t) {
      const int8_t* from = block_of(x[t], b).codes + 16 * k;
      totals[t] = add_two_sub_blocks<T>(totals[t], v, from, even, odd);
    }
  }
  const __m256 d = block_scales<T>(rows);
  for (int t = 0; t < count; ++t) {
    const __m256 a = _mm256_set1_ps(block_of(x[t], b).scale);
    __m256 term = scaled(d, a, totals[t]);
    if constexpr (kHasMins<T>) {
      const __m256 dmin = _mm256_cvtph_ps(gather16(rows, offsetof(typename T::Block, dmin)));
      term = _mm256_sub_ps(term, scaled(dmin, a, sum_of_sums(mins, block_of(x[t], b))));
    }
    segment[t] = _mm256_add_ps(segment[t], term);
  }
}

template <typename T>
MOETIER_KERNEL void panel_many(Rows8 rows, const Grids& grids, int64_t blocks, Ahead ahead, const std::byte* const* x,
                               int n, float (*sums)[8]) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  Scratch scratch;
  __m256 total[kDotTile], segment[kDotTile];
  __m256i integers[kDotTile];
  for (int t = 0; t < n; ++t) total[t] = segment[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    add_block<T>(rows, grids, scratch, x, b, n, integers, segment);
    rows.advance(kBytes);
    if ((b + 1) % kSegmentBlocks256 != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < n; ++t) {
      total[t] = _mm256_add_ps(total[t], segment[t]);
      segment[t] = _mm256_setzero_ps();
    }
  }
  for (int t = 0; t < n; ++t) _mm256_store_ps(sums[t], total[t]);
}

template <typename T, DotFn DotTable::*kPortable>
void dot_low_bits(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                  int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 256;
  const Grids& tables = grids();
  for_panels(w, first, last, out, n, [&](const Rows8& rows, Ahead ahead, float(*sums)[8]) {
    if (n == 1) {
      panel_one<T>(rows, tables, blocks, ahead, x[0], sums[0]);
    } else {
      panel_many<T>(rows, tables, blocks, ahead, x, n, sums);
    }
  });
}

MOETIER_KERNEL void put_low_bit_dots(DotTable& table) {
  table.q2_k = dot_low_bits<RowQ2K, &DotTable::q2_k>;
  table.q3_k = dot_low_bits<RowQ3K, &DotTable::q3_k>;
  table.iq2_xxs = dot_low_bits<RowIQ2XXS, &DotTable::iq2_xxs>;
  table.iq2_xs = dot_low_bits<RowIQ2XS, &DotTable::iq2_xs>;
  table.iq2_s = dot_low_bits<RowIQ2S, &DotTable::iq2_s>;
  table.iq3_xxs = dot_low_bits<RowIQ3XXS, &DotTable::iq3_xxs>;
  table.iq3_s = dot_low_bits<RowIQ3S, &DotTable::iq3_s>;
  table.iq1_s = dot_low_bits<RowIQ1S, &DotTable::iq1_s>;
  table.iq1_m = dot_low_bits<RowIQ1M, &DotTable::iq1_m>;
  table.iq4_xs = dot_low_bits<RowIQ4XS, &DotTable::iq4_xs>;
  table.tq1_0 = dot_low_bits<RowTQ1, &DotTable::tq1_0>;
  table.tq2_0 = dot_low_bits<RowTQ2, &DotTable::tq2_0>;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
