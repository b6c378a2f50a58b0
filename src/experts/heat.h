// Decayed counts of picks, one per entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/layer_shape.h"

namespace moetier {

/// heat = sum over picks of 2^(-age / half_life). Ages count the tokens that have passed through the entry's layer, so
/// a layer's heats fade when it is visited, all by the same factor. Kept without touching every entry at every visit: a
/// pick adds more and more to a sum, and now() brings sums to the present.
class Heat {
 public:
  Heat(std::span<const LayerShape> shapes, double half_life);
  /// Tokens have passed through a layer.
  void advance(int layer, int64_t tokens);
  /// A pick, `back` tokens before the last.
  void add(int layer, int expert, int64_t back = 0);
  /// All picks of a visit, [top_k x rows], older rows first.
  void add_rows(int layer, std::span<const int32_t> picks, int64_t rows);

  std::span<const double> sums(int layer) const { return sums_[static_cast<size_t>(layer)]; }
  double now(int layer, double sum) const { return sum / units_[static_cast<size_t>(layer)]; }
  double at(int layer, int expert) const { return now(layer, sums(layer)[static_cast<size_t>(expert)]); }

 private:
  double growth_;              // per token
  std::vector<double> fades_;  // by tokens back
  std::vector<double> units_;  // by layer: what a pick adds now
  std::vector<std::vector<double>> sums_;
};

}  // namespace moetier
