// The code books of the IQ types: an index of a block stands for a row of 8 (or 4) magnitudes.
#pragma once

#include <cstdint>

namespace moetier {

/// One row is one word; its element j is byte j. Elements are magnitudes, whose signs are stored apart: 8, 25, 43
/// (IQ2), 4, 12, 20, 28, 36, 44, 52, 62 (IQ3_XXS), 1, 3, ... 15 (IQ3_S). Only IQ1's have signs of their own: -1, 0, 1
/// are kept as 0, 8, 16, that is 8 * (element + 1), since IQ1 weights are eighths.
struct alignas(64) Grids {
  uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq1[2048];
  uint32_t iq3_xxs[256], iq3_s[512];
};

/// Made on first use, 33 KB.
const Grids& grids();

}  // namespace moetier
