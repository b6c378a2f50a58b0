// AMX dots of NVFP4: a tile of activations has a group's 16 columns, and its int32 products are scaled and added up by
// AVX-512.
#if defined(__x86_64__)

#include "compute/cpu/dot_blocks_amx.h"
#include "compute/cpu/dot_nvfp4_avx512.h"

namespace moetier::amx {
namespace {

using namespace avx512;

/// A segment of sixteen weight rows, group by group.
struct Weights {
  alignas(64) int8_t codes[kSegmentBlocks64][kGroupsPerBlock][4][64];
  alignas(64) float d[kSegmentBlocks64][kGroupsPerBlock][kPanel];

  MOETIER_KERNEL void decode(Rows16 rows, int blocks) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kFp4Values.data()));
    for (int b = 0; b < blocks; ++b, rows.advance(sizeof(BlockNVFP4))) {
      __m512i u[16];
      load_groups(rows, values, u);
      const __m512i scales = gather32(rows, offsetof(BlockNVFP4, scales));
      for (int g = 0; g < kGroupsPerBlock; ++g) {
        for (int j = 0; j < 4; ++j) _mm512_store_si512(codes[b][g][j], u[4 * g + j]);
        _mm512_store_ps(d[b][g], scales_of_group(scales, g));
      }
    }
  }
};

/// A segment's sums of a group of activation rows (at most kRows) and a panel.
template <bool kFlush, int kRows>
MOETIER_KERNEL void sum_segment(const Activations& x, const Weights& w, int group, int blocks, __m512* segment) {
  alignas(64) int32_t products[2][kGroupsPerBlock][kGroupRows][kPanel];
  __m512 sums[kRows];
  MOETIER_UNROLL
  for (int t = 0; t < kRows; ++t) sums[t] = _mm512_setzero_ps();
  const auto multiply_block = [&](int b) {
    const int8_t(*first)[32] = x.codes[group][2 * b], (*second)[32] = x.codes[group][2 * b + 1];
    multiply<0>(first[0], w.codes[b][0], products[b % 2][0]);
    multiply<1>(first[0] + 16, w.codes[b][1], products[b % 2][1]);
    multiply<0>(second[0], w.codes[b][2], products[b % 2][2]);
    multiply<1>(second[0] + 16, w.codes[b][3], products[b % 2][3]);
  };
  multiply_block(0);
  for (int b = 0; b < blocks; ++b) {
    // The tiles work on the next block while this one is added up.
    if (b + 1 < blocks) multiply_block(b + 1);
    __m512 d[kGroupsPerBlock];
    for (int g = 0; g < kGroupsPerBlock; ++g) d[g] = _mm512_load_ps(w.d[b][g]);
    const float *first = x.scales[group][2 * b], *second = x.scales[group][2 * b + 1];
    const auto& integers = products[b % 2];
    MOETIER_UNROLL
    for (int t = 0; t < kRows; ++t) {
      const auto product = [&](int g, float a) {
        return _mm512_mul_ps(scale_product<kFlush>(d[g], a), _mm512_cvtepi32_ps(_mm512_load_si512(integers[g][t])));
      };
      const __m512 low = _mm512_add_ps(product(0, first[t]), product(1, first[t]));
      const __m512 high = _mm512_add_ps(product(2, second[t]), product(3, second[t]));
      sums[t] = _mm512_add_ps(sums[t], _mm512_add_ps(low, high));
    }
  }
  MOETIER_UNROLL
  for (int t = 0; t < kRows; ++t) segment[t] = sums[t];
}

void dot64(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < kPanel || n <= kFewestRows) return avx512_dots()->nvfp4(w, first, last, x, out, n);
  constexpr size_t kBytes = sizeof(BlockNVFP4);
  const Grouping g(n);
  const Tiles tiles({{g.rows, 64}, {g.rows, 64}, {g.rows, 16}, {g.rows, 16}, {4, 64}, {4, 64}, {1, 64}, {1, 64}});
  Activations activations;
  Weights weights;
  activations.clear(g);
  const int64_t all_blocks = w.columns / kBlock64;
  for (int64_t begin = 0; begin < all_blocks; begin += kSegmentBlocks64) {
    const int64_t left = all_blocks - begin;
    const int blocks = left < kSegmentBlocks64 ? static_cast<int>(left) : kSegmentBlocks64;
    activations.pack(x, g, 2 * begin, 2 * blocks);
    const size_t offset = static_cast<size_t>(begin) * kBytes;
    for_panels(w, first, last, offset, [&](const Rows16& rows, const std::byte* next, int64_t base, __mmask16 mask) {
      prefetch_rows(next, w.row_bytes, static_cast<size_t>(blocks) * kBytes);
      weights.decode(rows, blocks);
      written();
      for (int group = 0; group < g.groups; ++group) {
        __m512 segment[kGroupRows];
        // A scale is 0 or at least 2^-10.
        if (activations.tiny) {
          sum_segment<true, kGroupRows>(activations, weights, group, blocks, segment);
        } else if (g.rows <= kGroupRows / 2) {
          sum_segment<false, kGroupRows / 2>(activations, weights, group, blocks, segment);
        } else {
          sum_segment<false, kGroupRows>(activations, weights, group, blocks, segment);
        }
        for (int t = 0; t < g.rows_of(group); ++t) {
          add_segment(out[group * g.rows + t] + (base - first), mask, begin == 0, segment[t]);
        }
      }
    });
  }
}

}  // namespace

void add_nvfp4_dots(DotTable& table) {
  table.nvfp4 = dot64;
}

}  // namespace moetier::amx

#endif
