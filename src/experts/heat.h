// Decayed counts of picks, one per entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/layer_shape.h"

namespace moetier {

/// heat = sum over picks of 2^(-age / half_life), ages in tokens. Kept without touching every entry at every token: a
/// pick adds 2^(time / half_life), so sums keep their order between picks, and now() brings them to the present.
class Heat {
 public:
  Heat(std::span<const LayerShape> shapes, double half_life);
  /// `tokens` have passed.
  void advance(int64_t tokens);
  /// A pick of the row that comes `row` tokens after now.
  void add(int layer, int expert, int64_t row, double amount = 1);
  std::span<const double> sums(int layer) const { return sums_[static_cast<size_t>(layer)]; }
  double now(double sum) const { return sum / unit_; }
  double at(int layer, int expert) const { return now(sums(layer)[static_cast<size_t>(expert)]); }

 private:
  void scale_down();
  double growth_;                  // per token
  double unit_ = 1;                // what a pick adds now
  std::vector<double> row_units_;  // growth_ to the power of the row, as far as was needed
  std::vector<std::vector<double>> sums_;
};

}  // namespace moetier
