// AVX-512 dots of the K types: super-blocks of 256 weights with integer sub-scales.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/dot_k_avx512.h"

namespace moetier::avx512 {
namespace {

/// Scaled sums on the way. A product of a sub-block's sum and its scale, and kPairs pairs of them, are integers below
/// 2^24 (32 columns of codes to 15 or 31 times 127 times a scale to 63), which float32 adds and multiplies without
/// rounding, in any order and fused or not: one instruction where int32 has none.
struct Sums {
  __m512 exact;
  __m512i whole;
};

/// The sub-blocks 2 * kPair (low nibbles) and 2 * kPair + 1 (high nibbles), for all activation rows.
template <typename T, int kPair>
MOETIER_KERNEL void add_pair(const Rows16& rows, Ahead ahead, const ScalesMinsOf16& head,
                             const typename T::FifthBits& fifth, const std::byte* const* x, int64_t b, int count,
                             Sums* sums) {
  constexpr size_t kBytes = kPanel * sizeof(typename T::Block);
  prefetch_part<2 * kPair, 8, kBytes>(ahead);
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i low[8], high[8];
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair, low);
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair + 16, low + 4);
  for (int j = 0; j < 8; ++j) {
    high[j] = _mm512_and_si512(_mm512_srli_epi16(low[j], 4), mask);
    low[j] = _mm512_and_si512(low[j], mask);
  }
  prefetch_part<2 * kPair + 1, 8, kBytes>(ahead);
  fifth.template add<2 * kPair>(low);
  fifth.template add<2 * kPair + 1>(high);
  const __m512 low_scale = head.scale<2 * kPair>(), high_scale = head.scale<2 * kPair + 1>();
  for (int t = 0; t < count; ++t) {
    const int8_t* codes = block_of(x[t], b).codes + 64 * kPair;
    const __m512 a = _mm512_cvtepi32_ps(add_dots<8>(_mm512_setzero_si512(), low, codes));
    const __m512 c = _mm512_cvtepi32_ps(add_dots<8>(_mm512_setzero_si512(), high, codes + 32));
    const __m512 first =
        kPair % T::kPairs == 0 ? _mm512_mul_ps(a, low_scale) : _mm512_fmadd_ps(a, low_scale, sums[t].exact);
    const __m512 exact = _mm512_fmadd_ps(c, high_scale, first);
    if constexpr ((kPair + 1) % T::kPairs != 0) {
      sums[t].exact = exact;
    } else if constexpr (kPair + 1 == T::kPairs) {
      sums[t].whole = _mm512_cvtps_epi32(exact);
    } else {
      sums[t].whole = _mm512_add_epi32(sums[t].whole, _mm512_cvtps_epi32(exact));
    }
  }
}

/// Adds one super-block's terms to the segments.
template <typename T>
MOETIER_KERNEL void add_block(const Rows16& rows, Ahead ahead, const std::byte* const* x, int64_t b, int count,
                              Sums* sums, __m512* segment) {
  const ScalesMinsOf16 head(rows);
  const typename T::FifthBits fifth(rows);
  add_pair<T, 0>(rows, ahead, head, fifth, x, b, count, sums);
  add_pair<T, 1>(rows, ahead, head, fifth, x, b, count, sums);
  add_pair<T, 2>(rows, ahead, head, fifth, x, b, count, sums);
  add_pair<T, 3>(rows, ahead, head, fifth, x, b, count, sums);
  for (int t = 0; t < count; ++t) segment[t] = _mm512_add_ps(segment[t], head.term(block_of(x[t], b), sums[t].whole));
}

// --- Q6_K ---

/// Half kHalf (16 columns of each of the four planes) of the 128 weights number kH: sub-blocks 8 kH + 2 p + kHalf.
template <int kH, int kHalf>
MOETIER_KERNEL void add_planes(const Rows16& rows, Ahead ahead, const __m512i scale_bytes[4], const std::byte* const* x,
                               int64_t b, int count, Sums* sums) {
  constexpr size_t kBytes = kPanel * sizeof(BlockQ6_K);
  __m512i u[16], scales[4];
  prefetch_part<4 * kH + 2 * kHalf, 8, kBytes>(ahead);
  load_planes<kH, kHalf>(rows, u);
  prefetch_part<4 * kH + 2 * kHalf + 1, 8, kBytes>(ahead);
  load_scales<kH, kHalf>(scale_bytes, scales);
  for (int t = 0; t < count; ++t) {
    const int8_t* codes = block_of(x[t], b).codes + 128 * kH + 16 * kHalf;
    const auto product = [&](int p) {
      return _mm512_mullo_epi32(add_dots<4>(_mm512_setzero_si512(), u + 4 * p, codes + 32 * p), scales[p]);
    };
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(product(0), product(1)),  //
                                         _mm512_add_epi32(product(2), product(3)));
    sums[t].whole = kH + kHalf == 0 ? sum : _mm512_add_epi32(sums[t].whole, sum);
  }
}

/// sum u*c less 32 * sum of scale * sum c: the codes are stored with an offset.
MOETIER_KERNEL __m512i without_offset(__m512i total, const __m512i scale_pairs[8], const Codes256& x) {
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < 8; ++i) sum = _mm512_dpwssd_epi32(sum, scale_pairs[i], broadcast4(x.sums16 + 2 * i));
  return _mm512_sub_epi32(total, _mm512_slli_epi32(sum, 5));
}

MOETIER_KERNEL void add_block_k6(const Rows16& rows, Ahead ahead, const std::byte* const* x, int64_t b, int count,
                                 Sums* sums, __m512* segment) {
  __m512i scale_bytes[4], scale_pairs[8];
  load_transposed(rows, offsetof(BlockQ6_K, scales), scale_bytes);
  const __m512 d = _mm512_cvtph_ps(gather16(rows, offsetof(BlockQ6_K, d)));
  add_planes<0, 0>(rows, ahead, scale_bytes, x, b, count, sums);
  add_planes<0, 1>(rows, ahead, scale_bytes, x, b, count, sums);
  add_planes<1, 0>(rows, ahead, scale_bytes, x, b, count, sums);
  add_planes<1, 1>(rows, ahead, scale_bytes, x, b, count, sums);
  for (int i = 0; i < 4; ++i) {
    scale_pairs[2 * i] = bytes_to_words<0, 1, true>(scale_bytes[i]);
    scale_pairs[2 * i + 1] = bytes_to_words<2, 3, true>(scale_bytes[i]);
  }
  for (int t = 0; t < count; ++t) {
    const Codes256& codes = block_of(x[t], b);
    const __m512i total = without_offset(sums[t].whole, scale_pairs, codes);
    segment[t] = _mm512_add_ps(segment[t], scaled(d, _mm512_set1_ps(codes.scale), total));
  }
}

// --- the loop ---

template <typename T>
MOETIER_KERNEL void panel256(Rows16 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                             float (*out)[kPanel]) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m512 total[kDotTile], segment[kDotTile];
  Sums sums[kDotTile];
  for (int t = 0; t < n; ++t) total[t] = segment[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    if constexpr (std::is_same_v<T, Q6_K>) {
      add_block_k6(rows, ahead, x, b, n, sums, segment);
    } else {
      add_block<T>(rows, ahead, x, b, n, sums, segment);
    }
    rows.advance(kBytes);
    ahead += kPanel * kBytes;
    if ((b + 1) % kSuperBlocksPerSegment != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < n; ++t) {
      total[t] = _mm512_add_ps(total[t], segment[t]);
      segment[t] = _mm512_setzero_ps();
    }
  }
  for (int t = 0; t < n; ++t) _mm512_store_ps(out[t], total[t]);
}

template <typename T, DotFn DotTable::*kNarrow>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  const int64_t blocks = w.columns / 256;
  for_panels(
      w, first, last, x, out, n, eight_row_dots().*kNarrow,
      [&](const Rows16& rows, Ahead ahead, float(*sums)[kPanel]) { panel256<T>(rows, blocks, ahead, x, n, sums); });
}

}  // namespace

void add_k_dots(DotTable& table) {
  table.q4_k = dot256<Q4_K, &DotTable::q4_k>;
  table.q5_k = dot256<Q5_K, &DotTable::q5_k>;
  table.q6_k = dot256<Q6_K, &DotTable::q6_k>;
}

}  // namespace moetier::avx512

#endif
