// Rows of float weights times rows of activations, the same for all units: rows are taken some at a time, and the flush
// of products is left out where no product can be that small.
//
// `Unit` is a type in the unit's own unnamed namespace, so that no two units share a copy compiled for one of them. Its
// members:
// - kRows: weight rows taken together; kSums: dots that its registers can hold at once;
// - dots<T, kRows, kColumns, kWithFlush>(w, x, n, out): out[r][t] = w[r] . x[t] over n columns, by docs/numbers.md;
// - smallest_magnitude(values, n): the smallest magnitude but zero among n values, infinity if there is none;
// - dot16<kWithFlush>(w, x, n): one dot, for plain_float_dots() only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compute/cpu/dot.h"
#include "compute/cpu/float_dot.h"
#include "compute/cpu/math.h"

namespace moetier::cpu {

/// The columns from c on of some rows with n, less than 16, filled up with zeros: products of 0 and 0 change no sum.
template <typename T, int kRows, int kColumns>
struct FloatTail {
  T weights[kRows][16] = {};
  float activations[kColumns][16] = {};
  const T* w[kRows];
  const float* x[kColumns];

  MOETIER_INLINE FloatTail(const T* const* all_w, const float* const* all_x, int64_t c, int64_t n) {
    for (int r = 0; r < kRows; ++r) {
      w[r] = weights[r];
      for (int64_t i = 0; c + i < n; ++i) weights[r][i] = all_w[r][c + i];
    }
    for (int t = 0; t < kColumns; ++t) {
      x[t] = activations[t];
      for (int64_t i = 0; c + i < n; ++i) activations[t][i] = all_x[t][c + i];
    }
  }
};

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

/// Puts a unit's functions of floats into its table; F16 and BF16 are how it calls these weights.
template <typename Unit, typename F16, typename BF16>
void add_float_rows(DotTable& table) {
  table.f32 = float_rows<Unit, float>;
  table.f16 = float_rows<Unit, F16>;
  table.bf16 = float_rows<Unit, BF16>;
}

/// One dot of weights that a caller has as Raw.
template <typename Unit, typename T, bool kWithFlush, typename Raw>
float one_float_dot(const Raw* w, const float* x, int64_t n) {
  return Unit::template dot16<kWithFlush>(reinterpret_cast<const T*>(w), x, n);
}

/// A unit's plain dots.
template <typename Unit, typename F16, typename BF16>
constexpr FloatDots plain_float_dots() {
  return {one_float_dot<Unit, float, false, float>,   one_float_dot<Unit, F16, false, uint16_t>,
          one_float_dot<Unit, BF16, false, uint16_t>, one_float_dot<Unit, float, true, float>,
          one_float_dot<Unit, F16, true, uint16_t>,   one_float_dot<Unit, BF16, true, uint16_t>};
}

}  // namespace moetier::cpu
