#include "cli/nearest.h"

#include <algorithm>

namespace moetier::cli {
namespace {

constexpr size_t kLeastLetters = 3;

/// Letters to add, drop, change or swap with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string_view body(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string nearest_word(std::string_view wrong, const std::vector<std::string>& known) {
  const std::string_view meant = body(wrong);
  constexpr size_t kLongest = 64;
  if (meant.size() < kLeastLetters || meant.size() > kLongest) return "";
  std::string best;
  size_t best_distance = meant.size() < 6 ? 2 : 3;
  for (const std::string& word : known) {
    if (body(word).size() < kLeastLetters) continue;
    const size_t distance = edit_distance(meant, body(word));
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = word;
  }
  return best;
}

}  // namespace moetier::cli
