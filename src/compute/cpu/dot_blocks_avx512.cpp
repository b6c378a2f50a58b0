// AVX-512 dots of the types with 32 weights in a block.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/dot_blocks_avx512.h"

namespace moetier::avx512 {
namespace {

/// A decoded block of sixteen rows.
template <typename T>
struct BlockOf16 {
  __m512i u[8];
  __m512 d, m;

  MOETIER_KERNEL explicit BlockOf16(const Rows16& rows) {
    if constexpr (kHasOffset<T>) {
      d = T::load(rows, u);
    } else {
      d = T::load(rows, u, m);
    }
  }

  MOETIER_KERNEL __m512 term(const Codes32& x) const {
    const __m512 a = _mm512_set1_ps(x.scale);
    if constexpr (kHasOffset<T>) {
      // The sum of codes fits in int16: its lower word times -kOffset, the upper one (its sign) times 0.
      const __m512i offset = _mm512_set1_epi32(-T::kOffset & 0xffff);
      const __m512i correction = _mm512_dpwssd_epi32(_mm512_setzero_si512(), broadcast4(&x.sum), offset);
      return scaled(d, a, add_dots<8>(correction, u, x.codes));
    } else {
      const __m512i sum = add_dots<8>(_mm512_setzero_si512(), u, x.codes);
      return _mm512_add_ps(scaled(d, a, sum), scaled(m, a, _mm512_set1_epi32(x.sum)));
    }
  }
};

/// Sixteen rows times `n` activation rows.
template <typename T>
MOETIER_KERNEL void panel32(Rows16 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                            float (*sums)[kPanel]) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m512 total[kDotTile], segment[kDotTile];
  for (int t = 0; t < n; ++t) total[t] = _mm512_setzero_ps();
  for (int64_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int64_t end = begin + kBlocksPerSegment < blocks ? begin + kBlocksPerSegment : blocks;
    for (int t = 0; t < n; ++t) segment[t] = _mm512_setzero_ps();
    for (int64_t b = begin; b < end; ++b) {
      prefetch(ahead, kPanel * kBytes);
      ahead += kPanel * kBytes;
      const BlockOf16<T> block(rows);
      rows.advance(kBytes);
      for (int t = 0; t < n; ++t) {
        segment[t] = _mm512_add_ps(segment[t], block.term(reinterpret_cast<const Codes32*>(x[t])[b]));
      }
    }
    for (int t = 0; t < n; ++t) total[t] = _mm512_add_ps(total[t], segment[t]);
  }
  for (int t = 0; t < n; ++t) _mm512_store_ps(sums[t], total[t]);
}

template <typename T, DotFn DotTable::*kNarrow>
void dot32(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  const int64_t blocks = w.columns / 32;
  for_panels(
      w, first, last, x, out, n, eight_row_dots().*kNarrow,
      [&](const Rows16& rows, Ahead ahead, float(*sums)[kPanel]) { panel32<T>(rows, blocks, ahead, x, n, sums); });
}

}  // namespace
}  // namespace moetier::avx512

namespace moetier {

const DotTable* avx512_dots() {
  using namespace avx512;
  static const DotTable all = [] {
    DotTable table{};
    table.q8_0 = dot32<Q8_0, &DotTable::q8_0>;
    table.q4_0 = dot32<Q4_0, &DotTable::q4_0>;
    table.q4_1 = dot32<Q4_1, &DotTable::q4_1>;
    table.q5_0 = dot32<Q5_0, &DotTable::q5_0>;
    table.q5_1 = dot32<Q5_1, &DotTable::q5_1>;
    table.iq4_nl = dot32<IQ4_NL, &DotTable::iq4_nl>;
    table.mxfp4 = dot32<MXFP4, &DotTable::mxfp4>;
    add_k_dots(table), add_low_bit_dots(table), add_nvfp4_dots(table), add_float_dots(table);
    return table;
  }();
  return &all;
}

}  // namespace moetier

#else

#include "compute/cpu/dot.h"

namespace moetier {
const DotTable* avx512_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
