// What the AMX dots share. Only for files named *_amx.cpp.
//
// AMX multiplies tiles of int8: here up to sixteen activation rows by sixteen weight rows, 32 or 64 columns at a time.
// Weights are decoded as for the AVX-512 unit, sixteen rows transposed in dwords, which is the form in which a tile
// wants them. A call goes through the matrix by segments of 512 columns: activations are copied together once per
// segment, then each panel of weight rows is decoded and multiplied with all of them. The integers are exact and the
// float sums are taken in the order that docs/numbers.md gives, so the bits are those of the other units.
#pragma once

#include <bit>

#include "compute/cpu/dot_avx512.h"

namespace moetier::amx {

using avx512::kPanel;
using avx512::Rows16;

/// Activation rows in a tile, and tiles that a call's rows make.
inline constexpr int kGroupRows = 16;
inline constexpr int kGroups = kDotTile / kGroupRows;
static_assert(kDotTile % kGroupRows == 0);
/// With fewer activation rows the AVX-512 functions are as fast.
inline constexpr int kFewestRows = 8;
inline constexpr int kSegment = 512;

/// How a call's activation rows are dealt into groups of equal size; the last may lack some.
struct Grouping {
  int n, groups, rows;

  explicit Grouping(int count)
      : n(count), groups((count + kGroupRows - 1) / kGroupRows), rows((count + groups - 1) / groups) {}
  int rows_of(int group) const { return n - group * rows < rows ? n - group * rows : rows; }
};

/// The shapes of all tiles while it lives.
class Tiles {
 public:
  struct Shape {
    int rows, bytes;
  };
  MOETIER_KERNEL explicit Tiles(const Shape (&shapes)[8]) {
    struct alignas(64) Config {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(Config) == 64);
    for (int i = 0; i < 8; ++i) {
      config.bytes[i] = static_cast<uint16_t>(shapes[i].bytes);
      config.rows[i] = static_cast<uint8_t>(shapes[i].rows);
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// What was written stands in memory before a tile is loaded (compilers do not see what a tile load reads).
MOETIER_KERNEL void written() {
  __asm__ volatile("" : : : "memory");
}

/// Finds out whether products of scales may be below 2^-100 and have to be flushed. If not, leaving the flush out
/// changes nothing but the sign of a zero, which no sum can show, since none is ever -0.
class SmallestScale {
 public:
  MOETIER_KERNEL void add(float a) {
    // As an integer, with 1 taken off, so that zero is the largest of all.
    const uint32_t bits = (std::bit_cast<uint32_t>(a) & 0x7fffffffu) - 1;
    if (bits < bits_) bits_ = bits;
  }
  /// True if every scale added is 0 or has a magnitude of at least `limit`.
  MOETIER_KERNEL bool at_least(float limit) const { return bits_ >= std::bit_cast<uint32_t>(limit) - 1; }

 private:
  uint32_t bits_ = 0xffffffffu;
};

/// Calls body(panel, next, base, mask), at `offset` bytes in the rows, for panels of sixteen rows that cover [first,
/// last); `base` is a panel's first row, and those of `mask` are new. `next` is where the next panel begins, or
/// nullptr.
template <typename Body>
MOETIER_KERNEL void for_panels(const WeightMatrix& w, int64_t first, int64_t last, size_t offset, Body body) {
  for (int64_t r = first; r < last; r += kPanel) {
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + kPanel <= w.rows ? r : w.rows - kPanel;
    const std::byte* data = w.data + static_cast<size_t>(base) * w.row_bytes + offset;
    const std::byte* next = r + 2 * kPanel <= w.rows ? data + kPanel * w.row_bytes : nullptr;
    body(Rows16(data, w.row_bytes), next, base, avx512::lanes_of(base, r, last));
  }
}

/// Fetches `bytes` of each of sixteen rows.
MOETIER_KERNEL void prefetch_rows(const std::byte* rows, size_t row_bytes, size_t bytes) {
  if (rows == nullptr) return;
  for (int r = 0; r < kPanel; ++r, rows += row_bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(rows + i), _MM_HINT_T0);
  }
}

/// Each puts the functions of some types into a table of the unit, from its own file.
void add_k_dots(DotTable& table);
void add_low_bit_dots(DotTable& table);
void add_nvfp4_dots(DotTable& table);

}  // namespace moetier::amx
