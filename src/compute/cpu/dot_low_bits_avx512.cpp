// AVX-512 dots of the types below four bits and their relatives (256 weights in a block).
//
// One activation row: each weight row's block is decoded to vectors of 64 codes, multiplied and scaled at once; the
// int32 lanes of eight rows are then added up together. More activation rows go the way of dot_planes_avx512.cpp.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/row_blocks_avx512.h"

namespace moetier::avx512 {
namespace {

constexpr int kRowsAtOnce = 8;
constexpr int kSegmentBlocks = 2;

template <typename T>
constexpr bool kHasMins = std::is_same_v<T, RowQ2K>;

/// The sums of the lanes of eight vectors.
MOETIER_KERNEL __m256i add_lanes(const __m512i v[kRowsAtOnce]) {
  // The halves of rows r and r + 4, added: in the low and the high half.
  const auto halves = [&](int r) {
    return _mm512_add_epi32(_mm512_shuffle_i64x2(v[r], v[r + 4], 0x44), _mm512_shuffle_i64x2(v[r], v[r + 4], 0xee));
  };
  const __m512i a = halves(0), b = halves(1), c = halves(2), d = halves(3);
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m512i even_odd = _mm512_shuffle_i64x2(abcd, abcd, 0xd8);
  return _mm256_add_epi32(half_of(even_odd, 0), half_of(even_odd, 1));
}
MOETIER_KERNEL __m256i add_lanes(const __m256i v[kRowsAtOnce]) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/// flush(d * a) * float(sum).
MOETIER_KERNEL __m256 scaled8(__m256 d, __m256 a, __m256i sum) {
  const __m256 product = _mm256_mul_ps(d, a);
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), product);
  const __mmask8 stays = _mm256_cmp_ps_mask(magnitude, _mm256_set1_ps(num::kFlush), _CMP_NLT_UQ);
  return _mm256_mul_ps(_mm256_maskz_mov_ps(stays, product), _mm256_cvtepi32_ps(sum));
}

/// A block of each of eight rows.
template <typename Block>
struct Blocks8 {
  const std::byte* row0;
  size_t stride;

  MOETIER_KERNEL const Block& operator[](int r) const {
    return *reinterpret_cast<const Block*>(row0 + static_cast<size_t>(r) * stride);
  }
  template <typename Field>
  MOETIER_KERNEL __m256 floats(Field field) const {
    alignas(16) uint16_t halves[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; ++r) halves[r] = field((*this)[r]);
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
  }
};

template <typename T>
MOETIER_KERNEL __m256 block_scales(const Blocks8<typename T::Block>& blocks) {
  const __m256 d = blocks.floats([](const typename T::Block& b) {
    if constexpr (std::is_same_v<T, RowIQ1M>) {
      return iq1_m_scale(b);
    } else {
      return b.d;
    }
  });
  return _mm256_mul_ps(d, _mm256_set1_ps(T::kUnit));
}

template <typename T>
MOETIER_KERNEL __m256 one_term(const Blocks8<typename T::Block>& blocks, const Grids& grids, const Codes256& x) {
  const typename T::Input in(x);
  __m512i lanes[kRowsAtOnce];
  __m256i mins[kRowsAtOnce];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    lanes[r] = T::sum(blocks[r], grids, in);
    if constexpr (kHasMins<T>) mins[r] = T::min_sum(blocks[r], in);
  }
  const __m256 a = _mm256_set1_ps(x.scale);
  const __m256 term = scaled8(block_scales<T>(blocks), a, T::finish(add_lanes(lanes), in));
  if constexpr (kHasMins<T>) {
    const __m256 dmin = blocks.floats([](const typename T::Block& b) { return b.dmin; });
    return _mm256_sub_ps(term, scaled8(dmin, a, add_lanes(mins)));
  } else {
    return term;
  }
}

/// Eight weight rows times one row of activations.
template <typename T>
MOETIER_KERNEL __m256 panel_one(Blocks8<typename T::Block> blocks, const Grids& grids, int64_t count, Ahead ahead,
                                const std::byte* x) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m256 total = _mm256_setzero_ps(), segment = _mm256_setzero_ps();
  for (int64_t b = 0; b < count; ++b) {
    prefetch(ahead, kRowsAtOnce * kBytes);
    ahead += kRowsAtOnce * kBytes;
    segment = _mm256_add_ps(segment, one_term<T>(blocks, grids, reinterpret_cast<const Codes256*>(x)[b]));
    blocks.row0 += kBytes;
    if ((b + 1) % kSegmentBlocks != 0 && b + 1 != count) continue;
    total = _mm256_add_ps(total, segment);
    segment = _mm256_setzero_ps();
  }
  return total;
}

template <typename T, DotFn DotTable::*kMany>
void dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (n != 1) return (planes_dots().*kMany)(w, first, last, x, out, n);
  if (w.rows < kRowsAtOnce) return (eight_row_dots().*kMany)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 256;
  const Grids& tables = grids();
  for (int64_t r = first; r < last; r += kRowsAtOnce) {
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + kRowsAtOnce <= w.rows ? r : w.rows - kRowsAtOnce;
    const std::byte* data = w.data + static_cast<size_t>(base) * w.row_bytes;
    const __m256 sums = panel_one<T>({data, w.row_bytes}, tables, blocks, cpu::ahead_of(w, base, kRowsAtOnce), x[0]);
    float* to = out[0] + (base - first);
    const int skip = static_cast<int>(r - base);
    const int64_t end = last - base < kRowsAtOnce ? last - base : kRowsAtOnce;
    const auto lanes = static_cast<__mmask8>((1u << end) - (1u << skip));
    _mm256_mask_storeu_ps(to, lanes, sums);
  }
}

}  // namespace

void add_low_bit_dots(DotTable& table) {
  table.q2_k = dot<RowQ2K, &DotTable::q2_k>;
  table.q3_k = dot<RowQ3K, &DotTable::q3_k>;
  table.iq2_xxs = dot<RowIQ2XXS, &DotTable::iq2_xxs>;
  table.iq2_xs = dot<RowIQ2XS, &DotTable::iq2_xs>;
  table.iq2_s = dot<RowIQ2S, &DotTable::iq2_s>;
  table.iq3_xxs = dot<RowIQ3XXS, &DotTable::iq3_xxs>;
  table.iq3_s = dot<RowIQ3S, &DotTable::iq3_s>;
  table.iq1_s = dot<RowIQ1S, &DotTable::iq1_s>;
  table.iq1_m = dot<RowIQ1M, &DotTable::iq1_m>;
  table.iq4_xs = dot<RowIQ4XS, &DotTable::iq4_xs>;
  table.tq1_0 = dot<RowTQ1, &DotTable::tq1_0>;
  table.tq2_0 = dot<RowTQ2, &DotTable::tq2_0>;
}

}  // namespace moetier::avx512

#endif
