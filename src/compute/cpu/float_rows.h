// Rows of float weights times rows of activations, the same for all units: rows are taken some at a time, and the flush
// of products is left out where no product can be that small.
//
// `Unit` is a type in the unit's own unnamed namespace, so that no two units share a copy compiled for one of them. Its
// members:
// - kRows: weight rows taken together; kSums: dots that its registers can hold at once;
// - dots<T, kRows, kColumns, kWithFlush>(w, x, n, out): out[r][t] = w[r] . x[t] over n columns, by docs/numbers.md;
// - smallest_magnitude(values, n): the smallest magnitude but zero among n values, infinity if there is none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compute/cpu/dot.h"

namespace moetier::cpu {

/// kRows rows from `r` on, times all activation rows.
template <typename Unit, typename T, int kRows, bool kWithFlush>
void float_panel(const T* const* rows, int64_t columns, int64_t r, const std::byte* const* x, float* const* out,
                 int n) {
  const auto* const* activations = reinterpret_cast<const float* const*>(x);
  constexpr int kColumns = std::min(4, Unit::kSums / kRows);
  int t = 0;
  for (; t + kColumns <= n; t += kColumns) {
    float sums[kRows][kColumns];
    Unit::template dots<T, kRows, kColumns, kWithFlush>(rows, activations + t, columns, sums);
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kColumns; ++k) out[t + k][r + i] = sums[i][k];
    }
  }
  for (; t < n; ++t) {
    float sums[kRows][1];
    Unit::template dots<T, kRows, 1, kWithFlush>(rows, activations + t, columns, sums);
    for (int i = 0; i < kRows; ++i) out[t][r + i] = sums[i][0];
  }
}

/// A DotFn of weights of type T.
template <typename Unit, typename T>
void float_rows(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                int n) {
  const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(w.data + static_cast<size_t>(r) * w.row_bytes); };
  // No product is below the flush limit if the smallest weight times the smallest activation is not. Then a flush
  // changes nothing but the sign of a zero, which no sum can show (none is ever -0). Finding out pays with many
  // activation rows.
  constexpr int kFew = 4;
  double smallest = 0;
  if (n >= kFew && last - first >= kFew) {
    smallest = std::numeric_limits<double>::infinity();
    for (int t = 0; t < n; ++t) {
      const double s = Unit::smallest_magnitude(reinterpret_cast<const float*>(x[t]), w.columns);
      if (s < smallest) smallest = s;
    }
  }
  const auto is_safe = [&](int64_t r) {
    return smallest > 0 && static_cast<double>(Unit::smallest_magnitude(row(r), w.columns)) * smallest >= 0x1p-100;
  };
  int64_t r = first;
  for (; n == 1 && r + 4 <= last; r += 4) {
    const T* rows[4] = {row(r), row(r + 1), row(r + 2), row(r + 3)};
    float_panel<Unit, T, 4, true>(rows, w.columns, r - first, x, out, n);
  }
  for (; r + Unit::kRows <= last; r += Unit::kRows) {
    const T* rows[Unit::kRows];
    bool safe = true;
    for (int i = 0; i < Unit::kRows; ++i) {
      rows[i] = row(r + i);
      safe = safe && is_safe(r + i);
    }
    if (safe) {
      float_panel<Unit, T, Unit::kRows, false>(rows, w.columns, r - first, x, out, n);
    } else {
      float_panel<Unit, T, Unit::kRows, true>(rows, w.columns, r - first, x, out, n);
    }
  }
  for (; r < last; ++r) {
    const T* rows[1] = {row(r)};
    float_panel<Unit, T, 1, true>(rows, w.columns, r - first, x, out, n);
  }
}

}  // namespace moetier::cpu
