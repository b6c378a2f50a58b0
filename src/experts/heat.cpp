#include "experts/heat.h"

#include <algorithm>
#include <cmath>

namespace moetier {
namespace {
constexpr double kHighUnit = 0x1p300;
constexpr int64_t kMostRows = 1 << 12;  // rows further on count as this one, so that no sum overflows
}  // namespace

Heat::Heat(std::span<const LayerShape> shapes, double half_life) : growth_(std::exp2(1 / half_life)), row_units_{1} {
  for (const LayerShape& shape : shapes) sums_.emplace_back(static_cast<size_t>(shape.n_expert), 0.0);
}

void Heat::advance(int64_t tokens) {
  for (; tokens > 0; --tokens) {
    unit_ *= growth_;
    if (unit_ > kHighUnit) scale_down();
  }
}

void Heat::add(int layer, int expert, int64_t row, double amount) {
  const auto r = static_cast<size_t>(std::min(row, kMostRows));
  while (row_units_.size() <= r) row_units_.push_back(std::min(row_units_.back() * growth_, kHighUnit));
  sums_[static_cast<size_t>(layer)][static_cast<size_t>(expert)] += unit_ * row_units_[r] * amount;
}

void Heat::scale_down() {
  for (std::vector<double>& layer : sums_) {
    for (double& sum : layer) sum /= kHighUnit;
  }
  unit_ /= kHighUnit;
}

}  // namespace moetier
