// Floats to IQ3_XXS, IQ3_S and IQ2_S: magnitudes are rows of a grid, signs are stored apart.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quant/encode.h"
#include "quant/grid_book.h"
#include "quant/grids.h"

namespace moetier::encoders {
namespace {

using QuadBook = GridBook<4, 8>;
using OctetBook = GridBook<8, 3>;

/// How the scale of a sub-block is searched: steps that make its largest magnitude 2 * top level + 1 + step * t, for t
/// = -trials..trials.
struct GridSearch {
  int trials;
  float step;
  float nothing;   ///< sub-blocks whose largest magnitude is smaller than this are zero
  bool all_again;  ///< with the final scale all rows are chosen again, not only those beside a rounded point
};

/// A sub-block of kRows rows.
template <typename Book, int kRows>
struct GridFit {
  static constexpr int kLength = Book::kRowLength * kRows;
  float scale = 0;
  int rows[kRows] = {};
};

template <typename Book, int kRows>
class GridFitter {
 public:
  using Fit = GridFit<Book, kRows>;

  /// x: magnitudes (where a sign had to give way, negative ones).
  GridFitter(const Book& book, const float* x, const float* weight) : book_(book), x_(x), weight_(weight) {
    for (int i = 0; i < Fit::kLength; ++i) root_[i] = std::sqrt(weight[i]);
  }

  Fit fit(const GridSearch& search) const {
    const float largest = *std::max_element(x_, x_ + Fit::kLength);
    if (!(largest > 0) || largest < search.nothing) return {};
    constexpr auto kTop = static_cast<float>(2 * Book::kTopLevel + 1);
    float scale = largest / kTop, best = 0;
    Rows rows;  // in weights so small that the sums underflow, no trial is better than this
    rows.fill({0, !search.all_again});
    for (int first = -search.trials; first <= search.trials; first += kLanes) {
      const Floats t = static_cast<float>(first) + Floats{0, 1, 2, 3};
      const Floats inverse = (kTop + t * search.step) / largest;
      const std::array<Rows, kLanes> trials = snap(inverse, 1.0f / inverse);
      const Sums sums = sum_up(trials);
      for (int lane = 0; lane < kLanes && first + lane <= search.trials; ++lane) {
        const float xr = sums.xr[lane], rr = sums.rr[lane];
        if (!(rr > 0 && xr * xr > best * rr)) continue;
        scale = xr / rr;
        best = scale * xr;
        rows = trials[static_cast<size_t>(lane)];
      }
    }
    if (scale > 0) choose_again(rows, scale, search.all_again);
    Fit found;
    found.scale = scale;
    for (size_t k = 0; k < kRows; ++k) found.rows[k] = rows[k].row;
    return found;
  }

 private:
  using Rows = std::array<typename Book::Snapped, kRows>;
  struct Sums {
    Floats xr = all(0), rr = all(0);  ///< of weight * x * row and weight * row * row
  };

  /// Chooses the rows beside rounded points (or all, if there is any) for the scale that was found, and the scale for
  /// them.
  void choose_again(Rows& rows, float& scale, bool all_rows) const {
    if (std::ranges::all_of(rows, [](const auto& row) { return row.on_grid; })) return;
    const Rows again = snap(all(1 / scale), all(scale))[0];
    for (size_t k = 0; k < kRows; ++k) {
      if (all_rows || !rows[k].on_grid) rows[k] = again[k];
    }
    const Sums sums = sum_up({rows, rows, rows, rows});
    if (sums.rr[0] > 0) scale = sums.xr[0] / sums.rr[0];
  }

  std::array<Rows, kLanes> snap(Floats inverse, Floats scale) const {
    std::array<Rows, kLanes> rows;
    for (size_t k = 0; k < kRows; ++k) {
      const float* x = x_ + Book::kRowLength * k;
      const Mask places = Book::places(x, inverse);
      for (int lane = 0; lane < kLanes; ++lane) {
        rows[static_cast<size_t>(lane)][k] = book_.snap(places[lane], x, root_ + Book::kRowLength * k, scale[lane]);
      }
    }
    return rows;
  }

  Sums sum_up(const std::array<Rows, kLanes>& rows) const {
    Sums sums;
    for (size_t k = 0; k < kRows; ++k) {
      const typename Book::Point &a = book_.point(rows[0][k].row), &b = book_.point(rows[1][k].row);
      const typename Book::Point &c = book_.point(rows[2][k].row), &d = book_.point(rows[3][k].row);
      for (size_t j = 0; j < Book::kRowLength; ++j) {
        const size_t i = Book::kRowLength * k + j;
        const Floats row = {a[j], b[j], c[j], d[j]};
        sums.xr = sums.xr + weight_[i] * x_[i] * row;
        sums.rr = sums.rr + weight_[i] * row * row;
      }
    }
    return sums;
  }

  const Book& book_;
  const float* x_;
  const float* weight_;
  float root_[Fit::kLength];
};

float sum_of_squares(const float* x) {
  float sum = 0;
  for (int i = 0; i < kSuperBlock; ++i) sum += x[i] * x[i];
  return sum;
}

/// Takes the signs off an octet. Bit j of the result: weight j is negative.
uint8_t split_signs(const float* x, float* magnitudes) {
  int signs = 0;
  for (int j = 0; j < 8; ++j) {
    signs |= (x[j] < 0 ? 1 : 0) << j;
    magnitudes[j] = std::fabs(x[j]);
  }
  return static_cast<uint8_t>(signs);
}

/// Only signs of even parity can be stored in seven bits: makes them so by turning the sign of the weight that matters
/// least, whose magnitude becomes negative.
uint32_t seven_signs(uint8_t signs, const float* weight, float* magnitudes) {
  if (std::popcount(signs) % 2 == 0) return signs & 127u;
  int least = 0;
  for (int j = 1; j < 8; ++j) {
    const auto counts = [&](int i) { return weight[i] * magnitudes[i] * magnitudes[i]; };
    if (counts(j) < counts(least)) least = j;
  }
  magnitudes[least] = -magnitudes[least];
  return (signs ^ 1u << least) & 127u;
}

/// Block scales as odd multiples 2m + 1 of a step that makes the largest 31; all are >= 0.
struct OddMultiples {
  float step;  ///< 0: all scales are 0
  int multiples[16];
};
OddMultiples to_odd_multiples(const float* scales, int n) {
  OddMultiples odd{};
  odd.step = *std::max_element(scales, scales + n) / 31.0f;
  if (!(odd.step > 0)) return {};
  const float inverse = reciprocal_or_zero(odd.step);
  for (int k = 0; k < n; ++k) {
    odd.multiples[k] = static_cast<int>(round_even(std::clamp(0.5f * (inverse * scales[k] - 1), 0.0f, 15.0f)));
  }
  return odd;
}

uint8_t nibbles(int low, int high) {
  return static_cast<uint8_t>(low | high << 4);
}

}  // namespace

// A block's f16 scale is larger than its step by a factor that makes up for what the search overlooks: 1.0125, 1.033
// and 0.9875, found by those who designed the types.

void encode_block(const float* x, BlockIQ3_XXS& out) {
  static const QuadBook book(std::span<const uint32_t>(grids().iq3_xxs), 2);
  f16_scale(signed_peak(x, kSuperBlock) / 1024.0f);  // fails where the block's scale would, before sums can overflow
  out = BlockIQ3_XXS{};
  float scales[8];
  for (int s = 0; s < 8; ++s) {
    const float* group = x + 32 * s;
    float magnitudes[32], weight[32];
    for (int i = 0; i < 32; ++i) weight[i] = group[i] * group[i];
    uint32_t signs = 0;
    for (int l = 0; l < 4; ++l) {
      const uint8_t octet = split_signs(group + 8 * l, magnitudes + 8 * l);
      signs |= seven_signs(octet, weight + 8 * l, magnitudes + 8 * l) << (7 * l);
    }
    const auto fit = GridFitter<QuadBook, 8>(book, magnitudes, weight).fit({15, 0.2f, 1e-8f, false});
    scales[s] = fit.scale;
    if (fit.scale == 0) continue;
    out.signs[s] = signs;
    for (int k = 0; k < 8; ++k) out.index[8 * s + k] = static_cast<uint8_t>(fit.rows[k]);
  }
  const OddMultiples odd = to_odd_multiples(scales, 8);
  out.d = f16_scale(odd.step * 1.0125f);
  for (int s = 0; s < 8; ++s) out.signs[s] = out.signs[s] | static_cast<uint32_t>(odd.multiples[s]) << 28;
}

void encode_block(const float* x, BlockIQ3_S& out) {
  static const QuadBook book(std::span<const uint32_t>(grids().iq3_s), 3);
  f16_scale(signed_peak(x, kSuperBlock) / 1024.0f);
  out = BlockIQ3_S{};
  float scales[8];
  for (int s = 0; s < 8; ++s) {
    const float* group = x + 32 * s;
    float magnitudes[32], weight[32];
    for (int i = 0; i < 32; ++i) weight[i] = group[i] * group[i];
    for (int l = 0; l < 4; ++l) out.signs[4 * s + l] = split_signs(group + 8 * l, magnitudes + 8 * l);
    const auto fit = GridFitter<QuadBook, 8>(book, magnitudes, weight).fit({9, 0.2f, 0.0f, true});
    scales[s] = fit.scale;
    for (int k = 0; k < 8; ++k) {
      out.index[8 * s + k] = static_cast<uint8_t>(fit.rows[k] & 255);
      out.high[s] = static_cast<uint8_t>(out.high[s] | (fit.rows[k] >> 8) << k);
    }
  }
  const OddMultiples odd = to_odd_multiples(scales, 8);
  out.d = f16_scale(odd.step * 1.033f);
  for (int s = 0; s < 4; ++s) out.scales[s] = nibbles(odd.multiples[2 * s], odd.multiples[2 * s + 1]);
}

void encode_block(const float* x, BlockIQ2_S& out) {
  static const OctetBook book(std::span<const uint64_t>(grids().iq2_s), 1);
  f16_scale(signed_peak(x, kSuperBlock) / 1024.0f);
  out = BlockIQ2_S{};
  const float base = 0.25f * (2 * sum_of_squares(x) / static_cast<float>(kSuperBlock));
  float scales[16];
  for (int k = 0; k < 16; ++k) {
    const float* group = x + 16 * k;
    float magnitudes[16], weight[16];
    for (int i = 0; i < 16; ++i) weight[i] = base + group[i] * group[i];
    const uint8_t signs[2] = {split_signs(group, magnitudes), split_signs(group + 8, magnitudes + 8)};
    const auto fit = GridFitter<OctetBook, 2>(book, magnitudes, weight).fit({9, 0.1f, 1e-8f, false});
    scales[k] = fit.scale;
    if (fit.scale == 0) continue;
    for (int half = 0; half < 2; ++half) {
      const int n = 2 * k + half;
      out.index[n] = static_cast<uint8_t>(fit.rows[half] & 255);
      out.high[n / 4] = static_cast<uint8_t>(out.high[n / 4] | (fit.rows[half] >> 8) << (2 * (n % 4)));
      out.signs[n] = signs[half];
    }
  }
  const OddMultiples odd = to_odd_multiples(scales, 16);
  out.d = f16_scale(odd.step * 0.9875f);
  for (int k = 0; k < 8; ++k) out.scales[k] = nibbles(odd.multiples[2 * k], odd.multiples[2 * k + 1]);
}

}  // namespace moetier::encoders
