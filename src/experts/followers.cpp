#include "experts/followers.h"

#include <algorithm>

namespace moetier {
namespace {
constexpr uint8_t kMost = 255;  // then a row's counts halve
}  // namespace

Followers::Followers(int n_expert, int top_k)
    : follows_(static_cast<size_t>(n_expert) * static_cast<size_t>(n_expert), 0),
      leads_(static_cast<size_t>(n_expert), 0) {
  last_.reserve(static_cast<size_t>(std::clamp(top_k, 1, std::max(n_expert, 1))));
}

void Followers::note(std::span<const int32_t> picks) {
  const size_t n = leads_.size();
  for (const int32_t expert : last_) {
    const auto e = static_cast<size_t>(expert);
    const std::span<uint8_t> row(&follows_[e * n], n);
    if (leads_[e] == kMost) {
      leads_[e] = kMost / 2;
      for (uint8_t& count : row) count = static_cast<uint8_t>(count / 2);
    }
    ++leads_[e];
    for (const int32_t next : picks) {
      if (uint8_t& count = row[static_cast<size_t>(next)]; count < kMost) ++count;
    }
  }
  last_.assign(picks.begin(), picks.end());
}

void Followers::expect(std::span<const double> rates, double backoff, std::span<double> chances) const {
  const size_t n = leads_.size();
  std::ranges::fill(chances, 0.0);
  double rest = 0;
  for (const int32_t expert : last_) {
    const auto e = static_cast<size_t>(expert);
    const double share = 1 / ((leads_[e] + backoff) * static_cast<double>(last_.size()));
    const uint8_t* const row = &follows_[e * n];
    for (size_t i = 0; i < n; ++i) chances[i] += share * row[i];
    rest += share * backoff;
  }
  for (size_t i = 0; i < n; ++i) chances[i] += rest * rates[i];
}

}  // namespace moetier
