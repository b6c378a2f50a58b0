// The loop that the portable dots of quantized types share, and the functions of the types below four bits.
#pragma once

#include "compute/cpu/dot.h"

namespace moetier::portable {

/// Columns in a segment of the float sum.
inline constexpr int64_t kSegment = 512;

/// Sums in the order of docs/numbers.md. kDecode makes a block's integers once for all activation rows; Decoded::q has
/// one element per weight, and Codes are as many activations.
template <typename Block, typename Decoded, typename Codes, void (*kDecode)(const Block&, Decoded&),
          float (*kTerm)(const Decoded&, const Codes&)>
void dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  constexpr int64_t kLength = sizeof(Decoded::q);
  const int64_t blocks = w.columns / kLength;
  for (int64_t r = first; r < last; ++r) {
    const auto* row = reinterpret_cast<const Block*>(w.data + static_cast<size_t>(r) * w.row_bytes);
    float total[kDotTile] = {}, segment[kDotTile] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      Decoded decoded;
      kDecode(row[b], decoded);
      for (int t = 0; t < n; ++t) {
        segment[t] = segment[t] + kTerm(decoded, reinterpret_cast<const Codes*>(x[t])[b]);
      }
      if ((b + 1) % (kSegment / kLength) != 0 && b + 1 != blocks) continue;
      for (int t = 0; t < n; ++t) total[t] = total[t] + segment[t], segment[t] = 0.0f;
    }
    for (int t = 0; t < n; ++t) out[t][r - first] = total[t];
  }
}

/// Puts the functions of the types below four bits, their relatives and NVFP4 into a table.
void add_low_bit_dots(DotTable& table);

}  // namespace moetier::portable
