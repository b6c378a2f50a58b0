// AMX dots of super-blocks of 256 weights, from planes of bytes (low_bit_planes_avx512.h says what a type's class has).
// Only for files named *_amx.cpp.
#pragma once

#include "compute/cpu/dot_amx.h"
#include "compute/cpu/dot_k_avx512.h"

namespace moetier::amx {
namespace {

using namespace avx512;

constexpr int kBlocks = kSegment / 256;
constexpr int kTileColumns = 64, kTilesPerBlock = 256 / kTileColumns;

/// The activations of a segment.
struct Activations {
  alignas(64) int8_t codes[kGroups][kBlocks][kTilesPerBlock][kGroupRows][kTileColumns];
  alignas(64) int16_t sums16[kGroups][kBlocks][kGroupRows][16];
  alignas(64) int16_t sums32[kGroups][kBlocks][kGroupRows][8];
  int32_t sums[kGroups][kBlocks][kGroupRows];
  float scales[kGroups][kBlocks][kGroupRows];
  bool tiny;  ///< a scale is below 2^-72, but not zero: products (of d to 2^-27) have to be flushed

  /// The two code sums that go with minima 2 i and 2 i + 1 of kMins.
  template <int kMins>
  MOETIER_KERNEL const int16_t* sums_of_pair(int group, int b, int row, int i) const {
    return kMins == 16 ? &sums16[group][b][row][2 * i] : &sums32[group][b][row][2 * i];
  }

  /// Rows that a group lacks have codes of 0.
  void clear(const Grouping& g) {
    if (g.groups * g.rows == g.n) return;
    std::memset(codes[g.groups - 1], 0, sizeof(codes[0]));
  }

  MOETIER_KERNEL void pack(const std::byte* const* x, const Grouping& g, int64_t first, int blocks) {
    SmallestScale smallest;
    int group = 0, row = 0;
    for (int t = 0; t < g.n; ++t, ++row) {
      if (row == g.rows) ++group, row = 0;
      for (int b = 0; b < blocks; ++b) {
        const Codes256& from = block_of(x[t], first + b);
        for (int j = 0; j < kTilesPerBlock; ++j) {
          _mm512_store_si512(codes[group][b][j][row], _mm512_loadu_si512(from.codes + kTileColumns * j));
        }
        std::memcpy(sums16[group][b][row], from.sums16, sizeof(from.sums16));
        std::memcpy(sums32[group][b][row], from.sums32, sizeof(from.sums32));
        int32_t sum = 0;
        for (const int16_t part : from.sums32) sum += part;
        sums[group][b][row] = sum;
        scales[group][b][row] = from.scale;
        smallest.add(from.scale);
      }
    }
    tiny = !smallest.at_least(0x1p-72f);
  }
};

/// The int32 products of a group and a panel in one super-block: of the high bytes and of the low ones.
struct Products {
  alignas(64) int32_t high[kGroupRows][kPanel];
  alignas(64) int32_t low[kGroupRows][kPanel];
};

// Tile x of activations times tile w of weights, into a tile of sums. (Tile numbers must be literals.)
#define MOETIER_MULTIPLY_TILES(sums, x, w) \
  if constexpr (T::kSigned) {              \
    _tile_dpbssd(sums, x, w);              \
  } else {                                 \
    _tile_dpbsud(sums, x, w);              \
  }

/// The four tiles of a group's activations in a super-block, times the weights.
template <typename T>
MOETIER_KERNEL void multiply(const int8_t (*codes)[kGroupRows][kTileColumns], const Planes& w, Products& out) {
  constexpr bool kTwo = T::kPlanes == 2;
  if constexpr (kTwo) _tile_zero(0);
  _tile_zero(1);
  const auto even = [&](int j) {
    _tile_loadd(2, codes[j], kTileColumns);
    if constexpr (kTwo) _tile_loadd(4, w.high[16 * j], 64);
    _tile_loadd(5, w.low[16 * j], 64);
    if constexpr (kTwo) {
      MOETIER_MULTIPLY_TILES(0, 2, 4)
    }
    MOETIER_MULTIPLY_TILES(1, 2, 5)
  };
  const auto odd = [&](int j) {
    _tile_loadd(3, codes[j], kTileColumns);
    if constexpr (kTwo) _tile_loadd(6, w.high[16 * j], 64);
    _tile_loadd(7, w.low[16 * j], 64);
    if constexpr (kTwo) {
      MOETIER_MULTIPLY_TILES(0, 3, 6)
    }
    MOETIER_MULTIPLY_TILES(1, 3, 7)
  };
  even(0), odd(1), even(2), odd(3);
  if constexpr (kTwo) _tile_stored(0, out.high, 64);
  _tile_stored(1, out.low, 64);
  written();
}
#undef MOETIER_MULTIPLY_TILES

template <bool kFlush>
MOETIER_KERNEL __m512 scaled_sum(__m512 d, __m512 a, __m512i sum) {
  const __m512 product = _mm512_mul_ps(d, a);
  return _mm512_mul_ps(kFlush ? flush16(product) : product, _mm512_cvtepi32_ps(sum));
}

/// Adds the terms of super-block `b` of the segment to the segment sums of a group.
template <typename T, bool kFlush>
MOETIER_KERNEL void add_terms(const T& weights, const Activations& x, int group, int b, int count,
                              const Products& products, float (*segment)[kPanel]) {
  const T head = weights;  // a copy that no store can change, for registers
  for (int t = 0; t < count; ++t) {
    __m512i sum = _mm512_load_si512(products.low[t]);
    if constexpr (T::kPlanes == 2) {
      sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(products.high[t]), T::kShift));
    } else {
      sum = T::finish(sum, x.sums[group][b][t]);
    }
    const __m512 a = _mm512_set1_ps(x.scales[group][b][t]);
    __m512 term = scaled_sum<kFlush>(head.d, a, sum);
    if constexpr (T::kMins > 0) {
      __m512i min_sum = _mm512_setzero_si512();
      for (int i = 0; i < T::kMins / 2; ++i) {
        const __m512i sums = broadcast4(x.sums_of_pair<T::kMins>(group, b, t, i));
        min_sum = _mm512_dpwssd_epi32(min_sum, head.mins[i], sums);
      }
      term = _mm512_sub_ps(term, scaled_sum<kFlush>(head.dmin, a, min_sum));
    }
    const __m512 before = b == 0 ? _mm512_setzero_ps() : _mm512_load_ps(segment[t]);
    _mm512_store_ps(segment[t], _mm512_add_ps(before, term));
  }
}

/// One segment of a call: blocks [begin, begin + blocks) of weight rows [first, last).
template <typename T>
MOETIER_KERNEL void run_segment(const WeightMatrix& w, int64_t first, int64_t last, int64_t begin, int blocks,
                                const Activations& x, const Grouping& g, float* const* out) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  Planes planes;
  Products products[kGroups];
  alignas(64) float segment[kGroups][kGroupRows][kPanel];
  const size_t offset = static_cast<size_t>(begin) * kBytes;
  for_panels(w, first, last, offset, [&](Rows16 rows, const std::byte* next, int64_t base, __mmask16 mask) {
    prefetch_rows(next, w.row_bytes, static_cast<size_t>(blocks) * kBytes);
    for (int b = 0; b < blocks; ++b) {
      T head;
      head.decode(rows, planes);
      rows.advance(kBytes);
      written();
      for (int group = 0; group < g.groups; ++group) multiply<T>(x.codes[group][b], planes, products[group]);
      for (int group = 0; group < g.groups; ++group) {
        const int count = g.rows_of(group);
        if (x.tiny) {
          add_terms<T, true>(head, x, group, b, count, products[group], segment[group]);
        } else {
          add_terms<T, false>(head, x, group, b, count, products[group], segment[group]);
        }
      }
    }
    for (int group = 0; group < g.groups; ++group) {
      for (int t = 0; t < g.rows_of(group); ++t) {
        float* to = out[group * g.rows + t] + (base - first);
        add_segment(to, mask, begin == 0, _mm512_load_ps(segment[group][t]));
      }
    }
  });
}

template <typename T, DotFn DotTable::*kFew>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < kPanel || n < kFewestRows) return (avx512_dots()->*kFew)(w, first, last, x, out, n);
  const Grouping g(n);
  const Tiles::Shape rows{g.rows, 64}, weights{16, 64};
  const Tiles tiles({rows, rows, rows, rows, weights, weights, weights, weights});
  Activations activations;
  activations.clear(g);
  const int64_t all_blocks = w.columns / 256;
  for (int64_t begin = 0; begin < all_blocks; begin += kBlocks) {
    const int64_t left = all_blocks - begin;
    const int blocks = left < kBlocks ? static_cast<int>(left) : kBlocks;
    activations.pack(x, g, begin, blocks);
    written();
    run_segment<T>(w, first, last, begin, blocks, activations, g, out);
  }
}

}  // namespace
}  // namespace moetier::amx
