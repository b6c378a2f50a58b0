#include "experts/heat.h"

#include <cmath>

namespace moetier {
namespace {
constexpr double kHighUnit = 0x1p300;
constexpr double kForgotten = 0x1p-40;  // what has faded to this no longer counts
constexpr size_t kMostBack = 4096;      // nor what is so many tokens back in one visit
}  // namespace

Heat::Heat(std::span<const LayerShape> shapes, double half_life)
    : growth_(std::exp2(1 / half_life)), units_(shapes.size(), 1.0) {
  for (double fade = 1; fade > kForgotten && fades_.size() < kMostBack; fade /= growth_) fades_.push_back(fade);
  for (const LayerShape& shape : shapes) sums_.emplace_back(static_cast<size_t>(shape.n_expert), 0.0);
}

void Heat::advance(int layer, int64_t tokens) {
  double& unit = units_[static_cast<size_t>(layer)];
  for (; tokens > 0; --tokens) {
    unit *= growth_;
    if (unit < kHighUnit) continue;
    for (double& sum : sums_[static_cast<size_t>(layer)]) sum /= kHighUnit;
    unit /= kHighUnit;
  }
}

void Heat::add(int layer, int expert, int64_t back) {
  if (static_cast<size_t>(back) >= fades_.size()) return;
  const auto l = static_cast<size_t>(layer);
  sums_[l][static_cast<size_t>(expert)] += units_[l] * fades_[static_cast<size_t>(back)];
}

void Heat::add_rows(int layer, std::span<const int32_t> picks, int64_t rows) {
  advance(layer, rows);
  const size_t per_row = rows > 0 ? picks.size() / static_cast<size_t>(rows) : 0;
  if (per_row == 0) return;
  for (size_t i = 0; i < per_row * static_cast<size_t>(rows); ++i)
    add(layer, picks[i], rows - 1 - static_cast<int64_t>(i / per_row));
}

}  // namespace moetier
