// AVX2 dots of the types below four bits and their relatives (256 weights in a block).
//
// One activation row: each weight row's block is decoded to vectors of 32 codes, multiplied and scaled at once; the
// int32 lanes of eight rows are then added up together. More activation rows: eight rows' codes are decoded to a
// scratch in the first-level cache, transposed as dot_avx2.h describes, and multiplied with all of them.
#if defined(__AVX2__) && defined(__F16C__)

#include <utility>

#include "compute/cpu/dot_avx2.h"
#include "compute/cpu/row_blocks_avx2.h"

namespace moetier::avx2 {
namespace {

constexpr int kBlocksPerSegment = 2;

template <typename T>
constexpr bool kHasMins = std::is_same_v<T, RowQ2K>;

MOETIER_KERNEL const Codes256& block_of(const std::byte* x, int64_t b) {
  return reinterpret_cast<const Codes256*>(x)[b];
}

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

/// Words 2 s (low half) and 2 s + 1 (high half), each everywhere in its half, from even_and_odd() words.
template <int s>
MOETIER_KERNEL __m256i scale_of_group(__m256i even_and_odd) {
  return _mm256_shuffle_epi8(even_and_odd, _mm256_set1_epi16(static_cast<int16_t>(2 * s | (2 * s + 1) << 8)));
}
/// The even words of 16 in the low half, the odd ones in the high half.
MOETIER_KERNEL __m256i even_and_odd(__m256i words) {
  const __m256i pattern = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, pattern), 0xd8);
}

/// Pair sums of group s.
template <int s, typename T>
MOETIER_KERNEL __m256i group_pairs(const T& row, const int8_t* codes) {
  const __m256i x = load256(codes + 32 * s);
  if constexpr (T::kKind == CodeKind::offset) {
    return _mm256_maddubs_epi16(row.template codes<s>(), x);
  } else if constexpr (T::kKind == CodeKind::masked) {
    const __m256i mask = row.template mask<s>();
    return _mm256_maddubs_epi16(row.template codes<s>(), _mm256_sub_epi8(_mm256_xor_si256(x, mask), mask));
  } else {
    const __m256i q = row.template codes<s>();
    return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
  }
}

template <typename T, int... s>
MOETIER_KERNEL __m256i add_groups(const T& row, __m256i sum, const int8_t* codes, std::integer_sequence<int, s...>) {
  if constexpr (T::kScaled) {
    const __m256i scales = even_and_odd(row.scales());
    ((sum = _mm256_add_epi32(sum, _mm256_madd_epi16(group_pairs<s>(row, codes), scale_of_group<s>(scales)))), ...);
    return sum;
  } else {
    // Ternary codes: the pair sums of the whole block fit in int16.
    __m256i pairs = _mm256_setzero_si256();
    ((pairs = _mm256_add_epi16(pairs, group_pairs<s>(row, codes))), ...);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
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
    if ((b + 1) % kBlocksPerSegment != 0 && b + 1 != blocks) continue;
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

template <typename T, int... s>
MOETIER_KERNEL void decode_codes(const T& row, uint8_t* codes, std::integer_sequence<int, s...>) {
  const auto group = [&]<int g>(std::integral_constant<int, g>) {
    __m256i q = row.template codes<g>();
    if constexpr (T::kKind == CodeKind::masked) {
      const __m256i mask = row.template mask<g>();
      q = _mm256_sub_epi8(_mm256_xor_si256(q, mask), mask);
      q = _mm256_add_epi8(q, _mm256_set1_epi8(static_cast<char>(T::kOffset)));
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
  __m256i sum = _mm256_madd_epi16(pairs[0], broadcast4(x.sums16));
  for (int i = 1; i < 8; ++i) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs[i], broadcast4(x.sums16 + 2 * i)));
  }
  return sum;
}

/// A sub-block of 16 columns times its scale.
template <typename T>
MOETIER_KERNEL __m256i sub_block(const __m256i v[4], const __m256i magnitudes[4], const int8_t* codes, __m256i scale) {
  if constexpr (T::kKind == CodeKind::table) {
    const auto four = [&](int j) {
      const __m256i turned = _mm256_sign_epi8(broadcast4(codes + 4 * j), v[j]);
      return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes[j], turned), scale);
    };
    return _mm256_add_epi32(_mm256_add_epi32(four(0), four(1)), _mm256_add_epi32(four(2), four(3)));
  } else {
    __m256i sum = _mm256_madd_epi16(pair_sums<T::kSums>(v, codes), scale);
    for (int j = T::kSums; j < 4; j += T::kSums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair_sums<T::kSums>(v + j, codes + 4 * j), scale));
    }
    return sum;
  }
}

template <typename T>
MOETIER_KERNEL void add_block(const Rows8& rows, const Grids& grids, Scratch& scratch, const std::byte* const* x,
                              int64_t b, int count, __m256i* totals, __m256* segment) {
  decode_panel<T>(rows, grids, scratch);
  __m256i scales[8], mins[8];
  for (__m256i& pair : scales) pair = _mm256_set1_epi16(1);
  if constexpr (T::kScaled) load_pairs(scratch.scales, scales);
  if constexpr (kHasMins<T>) load_pairs(scratch.mins, mins);
  for (int t = 0; t < count; ++t) {
    totals[t] = _mm256_setzero_si256();
    if constexpr (T::kOffset > 0) {
      const __m256i sum = sum_of_sums(scales, block_of(x[t], b));
      totals[t] = _mm256_mullo_epi32(sum, _mm256_set1_epi32(-T::kOffset));
    }
  }
  const Rows8 codes(reinterpret_cast<const std::byte*>(scratch.codes), sizeof(scratch.codes[0]));
  const __m256i low = _mm256_set1_epi32(0x01000100), high = _mm256_set1_epi32(0x03020302);
  const __m256i lanes = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  for (int k = 0; k < 16; ++k) {
    __m256i v[4], magnitudes[4];
    load_transposed(codes, static_cast<size_t>(16 * k), v);
    for (int j = 0; j < 4; ++j) magnitudes[j] = _mm256_abs_epi8(v[j]);
    const __m256i scale = _mm256_shuffle_epi8(scales[k / 2], _mm256_add_epi8(lanes, k % 2 == 0 ? low : high));
    for (int t = 0; t < count; ++t) {
      const int8_t* from = block_of(x[t], b).codes + 16 * k;
      totals[t] = _mm256_add_epi32(totals[t], sub_block<T>(v, magnitudes, from, scale));
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
    if ((b + 1) % kBlocksPerSegment != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < n; ++t) {
      total[t] = _mm256_add_ps(total[t], segment[t]);
      segment[t] = _mm256_setzero_ps();
    }
  }
  for (int t = 0; t < n; ++t) _mm256_store_ps(sums[t], total[t]);
}

template <typename T, DotFn DotTable::*kPortable>
void dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
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

}  // namespace

constinit const DotFn kDotQ2K = dot<RowQ2K, &DotTable::q2_k>;
constinit const DotFn kDotQ3K = dot<RowQ3K, &DotTable::q3_k>;
constinit const DotFn kDotIQ2XXS = dot<RowIQ2XXS, &DotTable::iq2_xxs>;
constinit const DotFn kDotIQ2XS = dot<RowIQ2XS, &DotTable::iq2_xs>;
constinit const DotFn kDotIQ2S = dot<RowIQ2S, &DotTable::iq2_s>;
constinit const DotFn kDotIQ3XXS = dot<RowIQ3XXS, &DotTable::iq3_xxs>;
constinit const DotFn kDotIQ3S = dot<RowIQ3S, &DotTable::iq3_s>;
constinit const DotFn kDotIQ1S = dot<RowIQ1S, &DotTable::iq1_s>;
constinit const DotFn kDotIQ1M = dot<RowIQ1M, &DotTable::iq1_m>;
constinit const DotFn kDotIQ4XS = dot<RowIQ4XS, &DotTable::iq4_xs>;
constinit const DotFn kDotTQ1 = dot<RowTQ1, &DotTable::tq1_0>;
constinit const DotFn kDotTQ2 = dot<RowTQ2, &DotTable::tq2_0>;

}  // namespace moetier::avx2

#endif
