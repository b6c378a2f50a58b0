// AMX dots of the types with 32 weights in a block: a tile of activations has a block's 32 columns, and its int32
// products are scaled and added up by AVX-512.
#if defined(__x86_64__)

#include "compute/cpu/dot_blocks_amx.h"
#include "compute/cpu/dot_blocks_avx512.h"

namespace moetier::amx {
namespace {

using namespace avx512;
static_assert(kBlocksPerSegment == kBlocks32);

/// A segment of sixteen weight rows.
template <typename T>
struct Weights {
  alignas(64) int8_t codes[kBlocksPerSegment][8][64];  ///< signed
  alignas(64) float d[kBlocksPerSegment][kPanel];
  alignas(64) float m[kHasOffset<T> ? 1 : kBlocksPerSegment][kPanel];
  bool tiny;  ///< as in Activations

  MOETIER_KERNEL void decode(Rows16 rows, int blocks) {
    __mmask16 small = 0;
    for (int b = 0; b < blocks; ++b) {
      __m512i u[8];
      __m512 scale;
      if constexpr (kHasOffset<T>) {
        scale = T::load(rows, u);
        for (int j = 0; j < 8; ++j) u[j] = _mm512_sub_epi8(u[j], _mm512_set1_epi8(static_cast<char>(T::kOffset)));
      } else {
        __m512 minimum;
        scale = T::load(rows, u, minimum);
        _mm512_store_ps(m[b], minimum);
      }
      for (int j = 0; j < 8; ++j) _mm512_store_si512(codes[b][j], u[j]);
      _mm512_store_ps(d[b], scale);
      // Half floats are 0 or at least 2^-24.
      if constexpr (std::is_same_v<T, MXFP4>) {
        small |= _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(scale, _mm512_set1_ps(0x1p-50f), _CMP_LT_OQ), scale,
                                         _mm512_setzero_ps(), _CMP_NEQ_OQ);
      }
      rows.advance(sizeof(typename T::Block));
    }
    tiny = small != 0;
  }
};

/// A segment's sums of a group and a panel; the group has at most kRows rows.
template <typename T, bool kFlush, int kRows>
MOETIER_KERNEL void sum_segment(const Activations& x, const Weights<T>& w, int group, int blocks, __m512* segment) {
  alignas(64) int32_t products[4][kGroupRows][kPanel];
  __m512 sums[kRows];
  MOETIER_UNROLL
  for (int t = 0; t < kRows; ++t) sums[t] = _mm512_setzero_ps();
  const auto multiply_pair = [&](int b) {
    if (b < blocks) multiply<0>(x.codes[group][b], w.codes[b], products[b % 4]);
    if (b + 1 < blocks) multiply<1>(x.codes[group][b + 1], w.codes[b + 1], products[b % 4 + 1]);
  };
  multiply_pair(0);
  for (int b = 0; b < blocks; ++b) {
    // The tiles work on the next pair while this one is added up.
    if (b % 2 == 0) multiply_pair(b + 2);
    const __m512 d = _mm512_load_ps(w.d[b]);
    const float *scales = x.scales[group][b], *code_sums = x.sums[group][b];
    MOETIER_UNROLL
    for (int t = 0; t < kRows; ++t) {
      const __m512 integer = _mm512_cvtepi32_ps(_mm512_load_si512(products[b % 4][t]));
      __m512 term = _mm512_mul_ps(scale_product<kFlush>(d, scales[t]), integer);
      if constexpr (!kHasOffset<T>) {
        const __m512 m = _mm512_load_ps(w.m[b]);
        term = _mm512_add_ps(term, _mm512_mul_ps(scale_product<kFlush>(m, scales[t]), _mm512_set1_ps(code_sums[t])));
      }
      sums[t] = _mm512_add_ps(sums[t], term);
    }
  }
  MOETIER_UNROLL
  for (int t = 0; t < kRows; ++t) segment[t] = sums[t];
}

/// The same for any group.
template <typename T>
MOETIER_KERNEL void sum_any_segment(const Activations& x, const Weights<T>& w, const Grouping& g, int group, int blocks,
                                    __m512* segment) {
  if (x.tiny || w.tiny) {
    sum_segment<T, true, kGroupRows>(x, w, group, blocks, segment);
  } else if (g.rows <= kGroupRows / 2) {
    sum_segment<T, false, kGroupRows / 2>(x, w, group, blocks, segment);
  } else {
    sum_segment<T, false, kGroupRows>(x, w, group, blocks, segment);
  }
}

template <typename T, DotFn DotTable::*kFew>
void dot32(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < kPanel || n < kFewestRows) return (avx512_dots()->*kFew)(w, first, last, x, out, n);
  constexpr size_t kBytes = sizeof(typename T::Block);
  const Grouping g(n);
  const Tiles tiles({{g.rows, 64}, {g.rows, 64}, {g.rows, 32}, {g.rows, 32}, {8, 64}, {8, 64}, {1, 64}, {1, 64}});
  Activations activations;
  Weights<T> weights;
  activations.clear(g);
  const int64_t all_blocks = w.columns / 32;
  for (int64_t begin = 0; begin < all_blocks; begin += kBlocksPerSegment) {
    const int64_t left = all_blocks - begin;
    const int blocks = left < kBlocksPerSegment ? static_cast<int>(left) : kBlocksPerSegment;
    activations.pack(x, g, begin, blocks);
    const size_t offset = static_cast<size_t>(begin) * kBytes;
    for_panels(w, first, last, offset, [&](const Rows16& rows, const std::byte* next, int64_t base, __mmask16 mask) {
      prefetch_rows(next, w.row_bytes, static_cast<size_t>(blocks) * kBytes);
      weights.decode(rows, blocks);
      written();
      for (int group = 0; group < g.groups; ++group) {
        __m512 segment[kGroupRows];
        sum_any_segment(activations, weights, g, group, blocks, segment);
        for (int t = 0; t < g.rows_of(group); ++t) {
          add_segment(out[group * g.rows + t] + (base - first), mask, begin == 0, segment[t]);
        }
      }
    });
  }
}

}  // namespace
}  // namespace moetier::amx

namespace moetier {

const DotTable* amx_dots() {
  using namespace amx;
  static const DotTable all = [] {
    DotTable table = *avx512_dots();  // for the types that have no functions here
    table.q8_0 = amx::dot32<Q8_0, &DotTable::q8_0>;
    table.q4_0 = amx::dot32<Q4_0, &DotTable::q4_0>;
    table.q4_1 = amx::dot32<Q4_1, &DotTable::q4_1>;
    table.q5_0 = amx::dot32<Q5_0, &DotTable::q5_0>;
    table.q5_1 = amx::dot32<Q5_1, &DotTable::q5_1>;
    table.iq4_nl = amx::dot32<IQ4_NL, &DotTable::iq4_nl>;
    table.mxfp4 = amx::dot32<MXFP4, &DotTable::mxfp4>;
    amx::add_k_dots(table), amx::add_low_bit_dots(table), amx::add_nvfp4_dots(table);
    return table;
  }();
  return &all;
}

}  // namespace moetier

#else

#include "compute/cpu/dot.h"

namespace moetier {
const DotTable* amx_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
