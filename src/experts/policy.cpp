#include "experts/policy.h"

#include <algorithm>
#include <limits>

#include "experts/policy_adaptive.h"
#include "experts/policy_heat.h"
#include "experts/policy_reuse.h"

namespace moetier {
namespace {

/// The entry not picked for longest goes.
class Lru : public Policy {
 public:
  explicit Lru(std::span<const LayerShape> shapes) {
    for (const LayerShape& shape : shapes) last_.emplace_back(static_cast<size_t>(shape.n_expert), 0.0);
  }
  std::string_view name() const override { return "lru"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t) override {
    std::vector<double>& last = last_[static_cast<size_t>(layer)];
    for (const int32_t expert : picks) last[static_cast<size_t>(expert)] = ++clock_;
  }
  std::span<const double> keys(int layer) const override { return last_[static_cast<size_t>(layer)]; }
  bool admits(int, int, int, int) const override { return true; }

 protected:
  std::vector<std::vector<double>> last_;

 private:
  double clock_ = 0;  // exact up to 2^53 picks
};

/// What the profile names never leaves; the others share what is left as under Lru.
class Pinned final : public Lru {
 public:
  Pinned(std::span<const LayerShape> shapes, std::span<const std::pair<int, int>> profile) : Lru(shapes), keys_(last_) {
    for (const auto& [layer, expert] : profile) {
      if (layer < 0 || static_cast<size_t>(layer) >= keys_.size()) continue;
      std::vector<double>& keys = keys_[static_cast<size_t>(layer)];
      if (expert < 0 || static_cast<size_t>(expert) >= keys.size()) continue;
      keys[static_cast<size_t>(expert)] = kPinned;
    }
  }
  std::string_view name() const override { return "pinned"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    Lru::touch(layer, picks, rows);
    const auto l = static_cast<size_t>(layer);
    for (const int32_t expert : picks) {
      const auto e = static_cast<size_t>(expert);
      if (keys_[l][e] != kPinned) keys_[l][e] = last_[l][e];
    }
  }
  std::span<const double> keys(int layer) const override { return keys_[static_cast<size_t>(layer)]; }
  bool admits(int, int, int victim_layer, int victim_expert) const override {
    return yields(victim_layer, victim_expert);
  }
  bool yields(int layer, int expert) const override {
    return keys_[static_cast<size_t>(layer)][static_cast<size_t>(expert)] != kPinned;
  }

 private:
  static constexpr double kPinned = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> keys_;
};

}  // namespace

std::unique_ptr<Policy> make_policy(CachePolicy kind, std::span<const LayerShape> shapes,
                                    std::span<const std::pair<int, int>> profile) {
  switch (kind) {
    case CachePolicy::lru:
      return std::make_unique<Lru>(shapes);
    case CachePolicy::pinned:
      return std::make_unique<Pinned>(shapes, profile);
    case CachePolicy::heat:
      return make_heat_policy(shapes);
    case CachePolicy::cycle:
      return make_cycle_policy(shapes);
    case CachePolicy::adaptive:
      return make_adaptive_policy(shapes);
    case CachePolicy::reuse:
      return make_reuse_policy(shapes, {.followers = false});
    case CachePolicy::standard:
      break;
  }
  return make_reuse_policy(shapes);
}

}  // namespace moetier
