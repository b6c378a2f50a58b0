#include "engine/dry_penalty.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compute/cpu/math64.h"
#include "engine/penalties.h"

namespace moetier {
namespace {

constexpr double kMostExponent = 88;  // e^88 is a float

}  // namespace

DryPenalty::DryPenalty(float multiplier, float base, int allowed, int window, std::vector<TokenId> breakers)
    : multiplier_(multiplier),
      base_(base),
      allowed_(static_cast<size_t>(allowed)),
      window_(window),
      breakers_(std::move(breakers)) {
  std::sort(breakers_.begin(), breakers_.end());
}

void DryPenalty::accept(TokenId token) {
  if (token < 0 || !active()) return;
  const auto most = static_cast<size_t>(window_);
  // Twice the window, so that it is seldom moved.
  if (window_ > 0 && history_.size() >= 2 * most)
    history_.erase(history_.begin(), history_.end() - static_cast<ptrdiff_t>(most));
  history_.push_back(token);
}

float DryPenalty::penalty(size_t common) const {
  const double exponent = static_cast<double>(common - allowed_) * num::log64(static_cast<double>(base_));
  const double value = static_cast<double>(multiplier_) * num::exp64(std::min(exponent, kMostExponent));
  return static_cast<float>(std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

void DryPenalty::apply(std::span<float> logits) {
  if (!active()) return;
  const size_t n = window_ < 0 ? history_.size() : std::min(history_.size(), static_cast<size_t>(window_));
  const auto back = [&](size_t i) { return history_[history_.size() - 1 - i]; };  // i tokens before the last
  size_t limit = 0;
  while (limit < n && !std::binary_search(breakers_.begin(), breakers_.end(), back(limit))) ++limit;
  if (limit < allowed_) return;
  // The Z function of the window read backwards.
  common_.assign(n, 0);
  std::vector<std::pair<TokenId, size_t>> found;  // what would go on, and with how much in common
  for (size_t i = 1, left = 0, right = 0; i < n; ++i) {
    size_t& z = common_[i];
    if (i < right) z = std::min(right - i, common_[i - left]);
    while (i + z < n && back(z) == back(i + z)) ++z;
    if (i + z > right) {
      left = i;
      right = i + z;
    }
    if (const size_t common = std::min(z, limit); common >= allowed_) found.emplace_back(back(i - 1), common);
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [token, common] = found[i];
    if (i + 1 < found.size() && found[i + 1].first == token) continue;  // the longest stands last
    if (static_cast<size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = sane_logit(logit - penalty(common));
  }
}

}  // namespace moetier
