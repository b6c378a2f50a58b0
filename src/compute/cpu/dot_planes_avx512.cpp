// AVX-512 dots of the types below four bits and their relatives with several activation rows: sixteen rows of weights
// as planes of bytes (low_bit_planes_avx512.h), so that a block's 256 columns are added up without a scale on the way.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/low_bit_planes_avx512.h"

namespace moetier::avx512 {
namespace {

/// Activation rows that are multiplied together: the more, the fewer times weights are loaded.
constexpr int kTogether = 8;

MOETIER_KERNEL int32_t sum_of_codes(const Codes256& x) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.sums32));
  const __m128i fours = _mm_madd_epi16(words, _mm_set1_epi16(1));
  const __m128i twos = _mm_hadd_epi32(fours, fours);
  return _mm_cvtsi128_si32(_mm_hadd_epi32(twos, twos));
}

/// Adds a block's terms for kCount activation rows to their segment sums.
template <typename T, int kCount>
MOETIER_KERNEL void add_terms(const T& head, const Planes& w, const std::byte* const* x, int64_t b, __m512* segment) {
  constexpr bool kTwo = T::kPlanes == 2;
  static_assert(T::kSigned);
  // With two planes a chain of sums for each; with one, two chains that take turns.
  __m512i first[kCount], second[kCount];
  const int8_t* codes[kCount];
  int32_t code_sums[kCount];
  const __m512i zero = _mm512_setzero_si512();
  MOETIER_UNROLL
  for (int t = 0; t < kCount; ++t) {
    codes[t] = block_of(x[t], b).codes;
    code_sums[t] = sum_of_codes(block_of(x[t], b));
    first[t] = _mm512_set1_epi32(-128 * code_sums[t]);  // bytes are taken 128 too large
    second[t] = kTwo ? first[t] : zero;
  }
  const __m512i offset = _mm512_set1_epi8(-128);
  const auto bytes = [&](const uint8_t(&row)[64]) { return _mm512_xor_si512(_mm512_load_si512(row), offset); };
  for (int i = 0; i < 64; i += 2) {
    const __m512i low = bytes(w.low[i]), next = bytes(w.low[i + 1]);
    const __m512i high = kTwo ? bytes(w.high[i]) : zero, high_next = kTwo ? bytes(w.high[i + 1]) : zero;
    MOETIER_UNROLL
    for (int t = 0; t < kCount; ++t) {
      const __m512i four = broadcast4(codes[t] + 4 * i), next_four = broadcast4(codes[t] + 4 * i + 4);
      first[t] = _mm512_dpbusd_epi32(first[t], low, four);
      if constexpr (kTwo) {
        second[t] = _mm512_dpbusd_epi32(second[t], high, four);
        first[t] = _mm512_dpbusd_epi32(first[t], next, next_four);
        second[t] = _mm512_dpbusd_epi32(second[t], high_next, next_four);
      } else {
        second[t] = _mm512_dpbusd_epi32(second[t], next, next_four);
      }
    }
  }
  MOETIER_UNROLL
  for (int t = 0; t < kCount; ++t) {
    const Codes256& block = block_of(x[t], b);
    __m512i sum;
    if constexpr (kTwo) {
      sum = _mm512_add_epi32(first[t], _mm512_slli_epi32(second[t], T::kShift));
    } else {
      sum = T::finish(_mm512_add_epi32(first[t], second[t]), code_sums[t]);
    }
    const __m512 a = _mm512_set1_ps(block.scale);
    __m512 term = scaled(head.d, a, sum);
    if constexpr (T::kMins > 0) {
      static_assert(T::kMins == 16);
      __m512i min_sum = _mm512_setzero_si512();
      for (int i = 0; i < 8; ++i)
        min_sum = _mm512_dpwssd_epi32(min_sum, head.mins[i], broadcast4(block.sums16 + 2 * i));
      term = _mm512_sub_ps(term, scaled(head.dmin, a, min_sum));
    }
    segment[t] = _mm512_add_ps(segment[t], term);
  }
}

template <typename T>
MOETIER_KERNEL void panel_of_planes(Rows16 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                                    float (*out)[kPanel]) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m512 total[kDotTile], segment[kDotTile];
  Planes planes;
  for (int t = 0; t < n; ++t) total[t] = segment[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, kPanel * kBytes);
    ahead += kPanel * kBytes;
    T head;
    head.decode(rows, planes);
    rows.advance(kBytes);
    int t = 0;
    for (; t + kTogether <= n; t += kTogether) add_terms<T, kTogether>(head, planes, x + t, b, segment + t);
    if (t + 4 <= n) add_terms<T, 4>(head, planes, x + t, b, segment + t), t += 4;
    if (t + 2 <= n) add_terms<T, 2>(head, planes, x + t, b, segment + t), t += 2;
    if (t < n) add_terms<T, 1>(head, planes, x + t, b, segment + t);
    if ((b + 1) % kSuperBlocksPerSegment != 0 && b + 1 != blocks) continue;
    for (t = 0; t < n; ++t) {
      total[t] = _mm512_add_ps(total[t], segment[t]);
      segment[t] = _mm512_setzero_ps();
    }
  }
  for (int t = 0; t < n; ++t) _mm512_store_ps(out[t], total[t]);
}

template <typename T, DotFn DotTable::*kNarrow>
void dot_planes(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                int n) {
  const int64_t blocks = w.columns / 256;
  for_panels(w, first, last, x, out, n, eight_row_dots().*kNarrow,
             [&](const Rows16& rows, Ahead ahead, float(*sums)[kPanel]) {
               panel_of_planes<T>(rows, blocks, ahead, x, n, sums);
             });
}

}  // namespace

const DotTable& planes_dots() {
  static constexpr DotTable all = [] {
    DotTable table{};
    table.q2_k = dot_planes<Q2_K, &DotTable::q2_k>;
    table.q3_k = dot_planes<Q3_K, &DotTable::q3_k>;
    table.iq2_xxs = dot_planes<IQ2_XXS, &DotTable::iq2_xxs>;
    table.iq2_xs = dot_planes<IQ2_XS, &DotTable::iq2_xs>;
    table.iq2_s = dot_planes<IQ2_S, &DotTable::iq2_s>;
    table.iq3_xxs = dot_planes<IQ3_XXS, &DotTable::iq3_xxs>;
    table.iq3_s = dot_planes<IQ3_S, &DotTable::iq3_s>;
    table.iq1_s = dot_planes<IQ1_S, &DotTable::iq1_s>;
    table.iq1_m = dot_planes<IQ1_M, &DotTable::iq1_m>;
    table.iq4_xs = dot_planes<IQ4_XS, &DotTable::iq4_xs>;
    table.tq1_0 = dot_planes<TQ1_0, &DotTable::tq1_0>;
    table.tq2_0 = dot_planes<TQ2_0, &DotTable::tq2_0>;
    return table;
  }();
  return all;
}

}  // namespace moetier::avx512

#endif
