// The code books as the encoders need them: from a point of levels to the row that it is, or to the rows around it.
// Internal to this room.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quant/encode_lanes.h"

namespace moetier::encoders {

/// A grid whose rows have kWidth elements of kLevels levels. Level l is the number 2l + 1 here, whatever magnitude the
/// type makes of it.
template <int kWidth, int kLevels>
class GridBook {
 public:
  static constexpr int kRowLength = kWidth;
  static constexpr int kTopLevel = kLevels - 1;
  using Point = std::array<float, kWidth>;

  /// `rows`: the grid's words, element j in byte j, in whatever magnitudes; they must grow with the level. `shells`:
  /// how many distances from a point count as around it, nearest first.
  template <typename Word>
  GridBook(std::span<const Word> rows, int shells) {
    std::vector<uint8_t> magnitudes;
    for (const Word row : rows) {
      for (int j = 0; j < kWidth; ++j) magnitudes.push_back(static_cast<uint8_t>(row >> (8 * j)));
    }
    std::vector<uint8_t> known = magnitudes;
    std::ranges::sort(known);
    known.erase(std::unique(known.begin(), known.end()), known.end());
    for (size_t r = 0; r < rows.size(); ++r) {
      Point point;
      for (size_t j = 0; j < kWidth; ++j) {
        const auto level = std::ranges::lower_bound(known, magnitudes[r * kWidth + j]) - known.begin();
        point[j] = static_cast<float>(2 * level + 1);
      }
      points_.push_back(point);
    }
    find_places(shells);
  }

  const Point& point(int row) const { return points_[static_cast<size_t>(row)]; }

  struct Snapped {
    int row;
    bool on_grid;  ///< the rounded point is a row itself
  };
  /// Rounds x * inverse to levels: the places of these points, for four inverses.
  static Mask places(const float* x, Floats inverse) {
    Floats place = all(0);
    for (int j = kWidth - 1; j >= 0; --j) {
      // A NaN (of zeros beside weights so small that inverse is infinite) is level 0.
      place = place * static_cast<float>(kLevels) + round_clamp(0.5f * (inverse * x[j] - 1), 0, kTopLevel);
    }
    return __builtin_convertvector(place, Mask);
  }
  /// The row at a place. If there is none, that one of the rows around it whose distance scale * row - x, squared and
  /// weighted, is smallest; the nearest to the place of equals.
  Snapped snap(int32_t place, const float* x, const float* weight, float scale) const {
    const int32_t found = places_[static_cast<size_t>(place)];
    if (found >= 0) return {found, true};
    const auto list = static_cast<size_t>(-1 - found);
    return {nearest({around_.data() + first_[list], around_.data() + first_[list + 1]}, x, weight, scale), false};
  }

 private:
  /// Four rows around a point.
  struct Around {
    Floats values[kWidth];
    std::array<int, kLanes> rows;
  };

  static int nearest(std::span<const Around> around, const float* x, const float* weight, float scale) {
    Floats best = all(3.4e38f), at = all(0), number = {0, 1, 2, 3};  // in the order of the list
    for (const Around& four : around) {
      Floats distance = all(0);
      for (int j = 0; j < kWidth; ++j) {
        const Floats difference = scale * four.values[j] - x[j];
        distance = distance + weight[j] * difference * difference;
      }
      const Mask closer = distance < best;
      best = closer ? distance : best;
      at = closer ? number : at;
      number = number + static_cast<float>(kLanes);
    }
    const Floats closest = lowest(best);
    const auto first = static_cast<size_t>(lowest(best == closest ? at : all(3.4e38f))[0]);
    return around[first / kLanes].rows[first % kLanes];
  }

  /// The lowest of the lanes, in all of them.
  static Floats lowest(Floats x) {
    x = smaller(x, __builtin_shufflevector(x, x, 2, 3, 0, 1));
    return smaller(x, __builtin_shufflevector(x, x, 1, 0, 3, 2));
  }

  void find_places(int shells) {
    size_t count = 1;
    for (int j = 0; j < kWidth; ++j) count *= kLevels;
    places_.assign(count, -1);
    for (size_t r = 0; r < points_.size(); ++r) {
      size_t place = 0;
      for (size_t j = kWidth; j-- > 0;) place = place * kLevels + static_cast<size_t>(points_[r][j]) / 2;
      places_[place] = static_cast<int32_t>(r);
    }
    for (size_t place = 0; place < count; ++place) {
      if (places_[place] >= 0) continue;
      places_[place] = -1 - static_cast<int32_t>(first_.size());
      first_.push_back(around_.size());
      add_around(place, shells);
    }
    first_.push_back(around_.size());
  }

  static int distance_to(size_t place, const Point& point) {
    int distance = 0;
    for (size_t j = 0; j < kWidth; ++j, place /= kLevels) {
      const int difference = static_cast<int>(point[j]) - static_cast<int>(2 * (place % kLevels) + 1);
      distance += difference * difference;
    }
    return distance;
  }

  /// The rows in the nearest shells around a place, by distance, those of a shell in their own order.
  void add_around(size_t place, int shells) {
    std::vector<std::pair<int, int>> rows;  // distance, row
    int limit = -1;
    std::vector<int> distances(points_.size());
    for (size_t r = 0; r < points_.size(); ++r) distances[r] = distance_to(place, points_[r]);
    for (int shell = 0; shell < shells; ++shell) {
      int next = std::numeric_limits<int>::max();
      for (const int d : distances) next = d > limit ? std::min(next, d) : next;
      limit = next;
    }
    for (size_t r = 0; r < points_.size(); ++r) {
      if (distances[r] <= limit) rows.emplace_back(distances[r], static_cast<int>(r));
    }
    std::ranges::sort(rows);
    const size_t n = rows.size();
    for (size_t i = 0; i < n; i += kLanes) {
      Around four;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int row = rows[std::min(n - 1, i + static_cast<size_t>(lane))].second;  // the last stands in for none
        four.rows[static_cast<size_t>(lane)] = row;
        for (int j = 0; j < kWidth; ++j) four.values[j][lane] = point(row)[static_cast<size_t>(j)];
      }
      around_.push_back(four);
    }
  }

  std::vector<Point> points_;
  std::vector<int32_t> places_;  ///< by levels, element 0 least significant: a row, or -1 - the list of rows around
  std::vector<size_t> first_;    ///< per list: where it begins in around_; one more at the end
  std::vector<Around> around_;
};

}  // namespace moetier::encoders
