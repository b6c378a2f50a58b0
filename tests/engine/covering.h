// Pairwise covering arrays: few cases in which every value of every factor meets every value of every other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <vector>

#include "base/random.h"

namespace moetier::testing_support {

/// A value's number for each factor.
using Row = std::vector<size_t>;

/// Rows that cover all pairs of values of `levels` (values per factor); the same for the same seed. Greedy: the best of
/// some random rows, each seeded with a pair that is still missing.
inline std::vector<Row> covering_rows(const std::vector<size_t>& levels, uint64_t seed) {
  Xoshiro256 random(seed);
  std::set<std::tuple<size_t, size_t, size_t, size_t>> missing;  // factor, value, factor, value
  for (size_t a = 0; a < levels.size(); ++a) {
    for (size_t b = a + 1; b < levels.size(); ++b) {
      for (size_t i = 0; i < levels[a]; ++i) {
        for (size_t j = 0; j < levels[b]; ++j) missing.emplace(a, i, b, j);
      }
    }
  }
  const auto covered = [&](const Row& row) {
    size_t n = 0;
    for (size_t a = 0; a < row.size(); ++a) {
      for (size_t b = a + 1; b < row.size(); ++b) n += missing.count({a, row[a], b, row[b]});
    }
    return n;
  };
  std::vector<Row> rows;
  while (!missing.empty()) {
    Row best;
    size_t most = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      Row row(levels.size());
      for (size_t f = 0; f < levels.size(); ++f) row[f] = random.next_starstar() % levels[f];
      auto pair = missing.begin();
      std::advance(pair, random.next_starstar() % std::min<size_t>(missing.size(), 50));
      const auto [a, i, b, j] = *pair;
      row[a] = i;
      row[b] = j;
      if (const size_t n = covered(row); n > most) {
        most = n;
        best = row;
      }
    }
    for (size_t a = 0; a < best.size(); ++a) {
      for (size_t b = a + 1; b < best.size(); ++b) missing.erase({a, best[a], b, best[b]});
    }
    rows.push_back(best);
  }
  return rows;
}

}  // namespace moetier::testing_support
