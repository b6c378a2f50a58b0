// The data behind grids.h.
#pragma once

#include <cstdint>

namespace moetier::grid_bitmaps {

/// Combinations of 3 levels in 8 places (6561 bits), or of 8 levels in 4 places (4096 bits).
inline constexpr int kWords3 = 103, kWords8 = 64;

extern const uint64_t kIq2Xxs[kWords3], kIq2Xs[kWords3], kIq2S[kWords3], kIq1[kWords3];
extern const uint64_t kIq3Xxs[kWords8], kIq3S[kWords8];

}  // namespace moetier::grid_bitmaps
