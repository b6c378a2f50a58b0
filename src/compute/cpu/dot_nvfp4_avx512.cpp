// AVX-512 dots of NVFP4: eight rows at a time for one row of activations (dot_nvfp4_avx2.h), sixteen for more.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/dot_nvfp4_avx512.h"

namespace moetier::avx512 {
namespace {

/// Table values are taken 12 too large: -12 times the sums of the activation rows' groups, for all columns of a
/// segment.
struct GroupSums {
  alignas(64) int32_t without[kDotTile][kSegmentGroups];

  MOETIER_KERNEL void take(const std::byte* const* x, int n, int64_t first, int blocks) {
    const __m256i offset = _mm256_set1_epi8(12);
    for (int t = 0; t < n; ++t) {
      const Codes32* codes = reinterpret_cast<const Codes32*>(x[t]) + 2 * first;
      for (int b = 0; b < 2 * blocks; ++b) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes[b].codes));
        const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(offset, v), _mm256_set1_epi16(-1));
        const __m256i twos = _mm256_hadd_epi32(fours, fours);
        const __m256i ones = _mm256_hadd_epi32(twos, twos);
        without[t][2 * b] = _mm_cvtsi128_si32(_mm256_castsi256_si128(ones));
        without[t][2 * b + 1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(ones, 1));
      }
    }
  }
};

/// Adds the terms of block `b` of a segment to the segment sums of all activation rows.
MOETIER_KERNEL void add_block(const Rows16& rows, const std::byte* const* x, const GroupSums& sums, int64_t first,
                              int b, int n, __m512* segment) {
  const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  __m512i u[16];
  __m512 d[kGroupsPerBlock];
  load_groups(rows, values, u);
  const __m512i scales = gather32(rows, offsetof(BlockNVFP4, scales));
  for (int g = 0; g < kGroupsPerBlock; ++g) d[g] = scales_of_group(scales, g);
  for (int t = 0; t < n; ++t) {
    const Codes32* codes = reinterpret_cast<const Codes32*>(x[t]) + 2 * (first + b);
    const auto product = [&](int g) {
      const __m512i without = broadcast4(&sums.without[t][kGroupsPerBlock * b + g]);
      const Codes32& half = codes[g / 2];
      return scaled(d[g], _mm512_set1_ps(half.scale), add_dots<4>(without, u + 4 * g, half.codes + 16 * (g % 2)));
    };
    const __m512 low = _mm512_add_ps(product(0), product(1)), high = _mm512_add_ps(product(2), product(3));
    segment[t] = _mm512_add_ps(segment[t], _mm512_add_ps(low, high));
  }
}

/// One segment of a call: adds its sums to those in `out`.
void add_segments(const WeightMatrix& w, int64_t first, int64_t last, int64_t begin, int blocks,
                  const std::byte* const* x, const GroupSums& sums, float* const* out, int n) {
  constexpr size_t kBytes = sizeof(BlockNVFP4);
  for (int64_t r = first; r < last; r += kPanel) {
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + kPanel <= w.rows ? r : w.rows - kPanel;
    const __mmask16 lanes = lanes_of(base, r, last);
    Rows16 rows(w.data + static_cast<size_t>(base) * w.row_bytes + static_cast<size_t>(begin) * kBytes, w.row_bytes);
    __m512 segment[kDotTile];
    for (int t = 0; t < n; ++t) segment[t] = _mm512_setzero_ps();
    for (int b = 0; b < blocks; ++b, rows.advance(kBytes)) add_block(rows, x, sums, begin, b, n, segment);
    for (int t = 0; t < n; ++t) add_segment(out[t] + (base - first), lanes, begin == 0, segment[t]);
  }
}

void dot64(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < kPanel || n == 1) return eight_row_dots().nvfp4(w, first, last, x, out, n);
  GroupSums sums;
  const int64_t all_blocks = w.columns / kBlock64;
  for (int64_t begin = 0; begin < all_blocks; begin += kSegmentBlocks64) {
    const int64_t left = all_blocks - begin;
    const int blocks = left < kSegmentBlocks64 ? static_cast<int>(left) : kSegmentBlocks64;
    sums.take(x, n, begin, blocks);
    add_segments(w, first, last, begin, blocks, x, sums, out, n);
  }
}

}  // namespace

void add_nvfp4_dots(DotTable& table) {
  table.nvfp4 = dot64;
}

}  // namespace moetier::avx512

#endif
