// What the AMX dots of the types with activations in blocks of 32 share. Only for files named *_amx.cpp, which each
// have their own copy.
#pragma once

#include "compute/cpu/dot_amx.h"

namespace moetier::amx {
namespace {

constexpr int kBlocks32 = kSegment / 32;

/// The activations of a segment.
struct Activations {
  alignas(64) int8_t codes[kGroups][kBlocks32][kGroupRows][32];
  alignas(64) float scales[kGroups][kBlocks32][kGroupRows];
  alignas(64) float sums[kGroups][kBlocks32][kGroupRows];  ///< of the codes
  bool tiny;  ///< a scale is below 2^-50, but not zero: products have to be flushed

  /// What stands for the rows that a group lacks: zeros.
  void clear(const Grouping& g) {
    if (g.groups * kGroupRows == g.n) return;
    std::memset(codes, 0, sizeof(codes)), std::memset(scales, 0, sizeof(scales)), std::memset(sums, 0, sizeof(sums));
  }

  MOETIER_KERNEL void pack(const std::byte* const* x, const Grouping& g, int64_t first, int blocks) {
    SmallestScale smallest;
    int group = 0, row = 0;
    for (int t = 0; t < g.n; ++t, ++row) {
      if (row == g.rows) ++group, row = 0;
      const Codes32* from = reinterpret_cast<const Codes32*>(x[t]) + first;
      for (int b = 0; b < blocks; ++b) {
        std::memcpy(codes[group][b][row], from[b].codes, 32);
        scales[group][b][row] = from[b].scale;
        sums[group][b][row] = static_cast<float>(from[b].sum);
        smallest.add(from[b].scale);
      }
    }
    tiny = !smallest.at_least(0x1p-50f);
  }
};

/// The int32 products of a group's activations (32 bytes from row to row) and a panel's weights, into `out`. kTile: 0
/// or 1, so that blocks can overlap.
template <int kTile>
MOETIER_KERNEL void multiply(const void* activations, const void* weights, int32_t (*out)[kPanel]) {
  if constexpr (kTile == 0) {
    _tile_zero(0);
    _tile_loadd(2, activations, 32);
    _tile_loadd(4, weights, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, out, 64);
  } else {
    _tile_zero(1);
    _tile_loadd(3, activations, 32);
    _tile_loadd(5, weights, 64);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(1, out, 64);
  }
  written();
}

template <bool kFlush>
MOETIER_KERNEL __m512 scale_product(__m512 d, float a) {
  const __m512 product = _mm512_mul_ps(d, _mm512_set1_ps(a));
  return kFlush ? avx512::flush16(product) : product;
}

}  // namespace
}  // namespace moetier::amx
