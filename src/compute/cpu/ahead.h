// Where a dot's next weights lie, for kernels that fetch them into the cache while they compute.
#pragma once

#include "compute/cpu/dot.h"
#include "compute/cpu/math.h"

namespace moetier::cpu {

/// How far ahead of the first level, in bytes, the second level is filled (18, 27 and 46 KiB measured alike): the few
/// fill buffers of the first level alone do not keep the memory busy.
inline constexpr size_t kFurtherAhead = 20 * 1024;

/// What comes next, and what comes kFurtherAhead later. Both may lie past the weights: a prefetch never faults.
struct Ahead {
  const std::byte *next, *further;

  MOETIER_INLINE Ahead& operator+=(size_t bytes) {
    next += bytes;
    further += bytes;
    return *this;
  }
};

/// What is read after the `count` rows from `row` on. Behind the matrix that is `then`; where there is none, the rows
/// themselves, which are in the cache, so that nothing is fetched that nobody reads.
MOETIER_INLINE Ahead ahead_of(const WeightMatrix& w, int64_t row, int64_t count) {
  const size_t begin = static_cast<size_t>(row) * w.row_bytes, end = static_cast<size_t>(w.rows) * w.row_bytes;
  const size_t next = begin + static_cast<size_t>(count) * w.row_bytes, further = next + kFurtherAhead;
  const bool known = w.then != nullptr;
  return {next < end ? w.data + next
          : known    ? w.then + (next - end)
                     : w.data + begin,
          further < end ? w.data + further
          : known       ? w.then + (further - end)
                        : w.data + begin};
}

}  // namespace moetier::cpu
