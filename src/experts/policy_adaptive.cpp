#include "experts/policy_adaptive.h"

#include <algorithm>

#include "experts/heat.h"

namespace moetier {
namespace {

struct Ranked {
  double heat = 0;
  int layer = 0, expert = 0;
};

class Adaptive final : public Policy {
 public:
  Adaptive(std::span<const LayerShape> shapes, const AdaptiveOptions& options)
      : options_(options), heat_(shapes, options.half_life), seen_(shapes.size()) {
    size_t entries = 0;
    for (size_t l = 0; l < shapes.size(); ++l) {
      seen_[l].resize(static_cast<size_t>(shapes[l].n_expert), 0);
      entries += seen_[l].size();
    }
    wanted_.reserve(entries);
    kept_.reserve(entries);
    used_.resize(shapes.size());
  }

  std::string_view name() const override { return "adaptive"; }

  void begin_token(int64_t rows) override {
    if (rows <= 0 || rows > kSmallRows) return;
    since_swap_ += rows;
    since_fill_ += rows;
  }

  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    if (rows > kSmallRows) return;
    ++visit_;
    heat_.advance(layer, rows);
    std::vector<uint64_t>& seen = seen_[static_cast<size_t>(layer)];
    for (const int32_t expert : picks) {
      uint64_t& last = seen[static_cast<size_t>(expert)];
      if (last == visit_) continue;
      last = visit_;
      heat_.add(layer, expert);
    }
  }

  std::span<const double> keys(int layer) const override { return heat_.sums(layer); }
  bool admits(int, int, int, int) const override { return false; }
  bool takes_slots() const override { return false; }

  void propose(const CacheView& cache, int max_swaps, std::vector<Proposal>& proposals) override {
    if (max_swaps >= 0) {
      const int filled = fill(cache, max_swaps, proposals);
      swap(cache, max_swaps - filled, proposals);
      return;
    }
    if (since_fill_ >= options_.fill_every) {
      since_fill_ = 0;
      if (fill(cache, options_.most_fills, proposals) > 0) return;
    }
    if (since_swap_ < options_.swap_every) return;
    since_swap_ = 0;
    swap(cache, options_.most_swaps, proposals);
  }

 private:
  /// The hottest entries that the cache lacks into free slots.
  int fill(const CacheView& cache, int most, std::vector<Proposal>& proposals) {
    bool any = false;
    for (size_t l = 0; l < seen_.size(); ++l) {
      used_[l] = cache.free_slots(static_cast<int>(l));
      any = any || used_[l] > 0;
    }
    if (!any) return 0;
    rank(cache);
    int filled = 0;
    for (const Ranked& entry : wanted_) {
      if (filled >= most) break;
      if (used_[static_cast<size_t>(entry.layer)] <= 0) continue;
      for (size_t l = 0; l < used_.size(); ++l) {
        if (cache.same_size(entry.layer, static_cast<int>(l))) --used_[l];
      }
      proposals.push_back({entry.layer, entry.expert});
      ++filled;
    }
    return filled;
  }

  /// The hottest it lacks for the coldest it holds, as long as that is worth it.
  void swap(const CacheView& cache, int most, std::vector<Proposal>& proposals) {
    if (most <= 0) return;
    rank(cache);
    int swapped = 0;
    for (const Ranked& in : wanted_) {
      if (swapped >= most) break;
      Ranked* out = nullptr;
      for (Ranked& held : kept_) {
        if (held.expert < 0 || !cache.same_size(in.layer, held.layer)) continue;
        out = &held;
        break;
      }
      if (out == nullptr || !(in.heat > options_.factor * out->heat + options_.margin)) {
        if (in.heat <= options_.margin) break;
        continue;
      }
      proposals.push_back({in.layer, in.expert, out->layer, out->expert});
      out->expert = -1;
      ++swapped;
    }
  }

  /// wanted_: what is not held, hottest first; kept_: what is, coldest first, but for layers held whole.
  void rank(const CacheView& cache) {
    wanted_.clear();
    kept_.clear();
    for (size_t l = 0; l < seen_.size(); ++l) {
      const int layer = static_cast<int>(l), n = static_cast<int>(seen_[l].size());
      if (cache.held_in(layer) == n) continue;
      for (int e = 0; e < n; ++e) {
        const double heat = heat_.at(layer, e);
        if (cache.holds(layer, e)) {
          kept_.push_back({heat, layer, e});
        } else if (heat > 0) {
          wanted_.push_back({heat, layer, e});
        }
      }
    }
    const auto id_less = [](const Ranked& a, const Ranked& b) {
      return a.layer != b.layer ? a.layer < b.layer : a.expert < b.expert;
    };
    std::ranges::sort(
        wanted_, [&](const Ranked& a, const Ranked& b) { return a.heat != b.heat ? a.heat > b.heat : id_less(a, b); });
    std::ranges::sort(
        kept_, [&](const Ranked& a, const Ranked& b) { return a.heat != b.heat ? a.heat < b.heat : id_less(a, b); });
  }

  AdaptiveOptions options_;
  Heat heat_;
  std::vector<std::vector<uint64_t>> seen_;  // the last visit that picked an entry
  uint64_t visit_ = 0;
  int64_t since_swap_ = 0, since_fill_ = 0;
  std::vector<Ranked> wanted_, kept_;
  std::vector<int64_t> used_;  // free slots left, by layer
};

}  // namespace

std::unique_ptr<Policy> make_adaptive_policy(std::span<const LayerShape> shapes, const AdaptiveOptions& options) {
  return std::make_unique<Adaptive>(shapes, options);
}

}  // namespace moetier
