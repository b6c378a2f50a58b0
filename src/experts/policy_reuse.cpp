#include "experts/policy_reuse.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "experts/followers.h"

namespace moetier {
namespace {

constexpr int kAges = 10;           // picked 1, 2, 3-4, 5-8 ... 129-256 tokens ago, and longer
constexpr int kRates = 16;          // 1 to 1/2, 1/2 to 1/4 ... and 0 (the first)
constexpr int kChances = 9;         // the same, down to 1/256
constexpr int64_t kMostRows = 128;  // of a visit that are looked at, the last ones
constexpr int kLongAgo = 1 << kAges;
constexpr double kPriorCount = 16;

class ReusePolicy final : public Policy {
 public:
  ReusePolicy(std::span<const LayerShape> shapes, const ReuseOptions& options)
      : options_(options), fade_(std::exp2(-1 / options.half_life)) {
    size_t most = 0;
    double picks = 0, experts = 0;
    for (const LayerShape& shape : shapes) {
      const auto n = static_cast<size_t>(shape.n_expert);
      layers_.push_back({std::vector<double>(n, 0), std::vector<double>(n, 0), std::vector<double>(n, 0),
                         std::vector<int>(n, kLongAgo), std::vector<uint16_t>(n, 0)});
      if (options.followers) followers_.emplace_back(shape.n_expert, shape.top_k);
      most = std::max(most, n);
      picks += std::min(shape.top_k, shape.n_expert);
      experts += shape.n_expert;
    }
    picked_.resize(most, 0);
    chances_.resize(options.followers ? most : 0, 0);
    position_weight_ = options.position_weight * picks / std::max(experts, 1.0) /
                       static_cast<double>(std::max<size_t>(shapes.size(), 1));
    for (int age = 0; age < kAges; ++age) {
      for (int rate = 0; rate < kRates; ++rate) {
        const double its = std::ldexp(1.0, rate - kRates);  // to begin with: half by rate, half by recency
        for (int chance = 0; chance < kChances; ++chance)
          kinds_[index(age, rate, chance)] = {kPriorCount, kPriorCount * its * (0.5 + 0.5 * std::ldexp(1.0, -age))};
      }
    }
  }

  std::string_view name() const override { return options_.followers ? "default" : "reuse"; }

  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    at_ = layer;
    const size_t per_row = rows > 0 ? picks.size() / static_cast<size_t>(rows) : 0;
    if (per_row == 0) return;
    Layer& l = layers_[static_cast<size_t>(layer)];
    Followers* const followers = options_.followers ? &followers_[static_cast<size_t>(layer)] : nullptr;
    for (int64_t row = std::max<int64_t>(rows - kMostRows, 0); row < rows; ++row)
      pass(l, followers, picks.subspan(static_cast<size_t>(row) * per_row, per_row));
    for (size_t e = 0; e < l.keys.size(); ++e) {
      const Kind& kind = kinds_[l.kinds[e]];
      // The last term parts entries of one kind.
      l.keys[e] = (1 - options_.rate_share) * (kind.picked / kind.seen) + (options_.rate_share + kTie) * l.rates[e];
    }
  }

  std::span<const double> keys(int layer) const override { return layers_[static_cast<size_t>(layer)].keys; }
  double value(int layer, double key) const override {
    return key - position_weight_ * layers_ahead(layer, at_, static_cast<int>(layers_.size()));
  }
  bool admits(int layer, int expert, int victim_layer, int victim_expert) const override {
    return of(layer, expert) >= of(victim_layer, victim_expert);
  }

 private:
  struct Layer {
    std::vector<double> counts;  // decayed picks
    std::vector<double> rates;   // the same per visit
    std::vector<double> keys;
    std::vector<int> ages;        // tokens since the last pick, kLongAgo at most
    std::vector<uint16_t> kinds;  // by age, rate and chance to follow
    double visits = 0;            // decayed
  };
  struct Kind {
    double seen = 0, picked = 0;
  };
  static constexpr double kTie = 1e-6;

  static size_t index(int age, int rate, int chance) {
    return static_cast<size_t>((age * kRates + rate) * kChances + chance);
  }
  static int exponent(double x) {  // of 0: far below all others
    return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52) - 1023;
  }
  static uint16_t kind_of(int age, double rate, double chance) {
    const int a = std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(age - 1))), kAges - 1);
    return static_cast<uint16_t>(index(a, std::clamp(kRates + exponent(rate), 0, kRates - 1),
                                       std::clamp(kChances + exponent(chance), 0, kChances - 1)));
  }

  /// One token passes through a layer: the table learns from it, then the layer's counts do.
  void pass(Layer& l, Followers* followers, std::span<const int32_t> picks) {
    for (const int32_t expert : picks) picked_[static_cast<size_t>(expert)] = 1;
    const bool known = l.visits > 0;
    l.visits = l.visits * fade_ + 1;
    const double share = 1 / l.visits;
    const size_t n = l.counts.size();
    for (size_t e = 0; e < n; ++e) {
      const double hit = picked_[e];
      if (known) learn(kinds_[l.kinds[e]], hit);
      l.counts[e] = l.counts[e] * fade_ + hit;
      l.rates[e] = l.counts[e] * share;
      l.ages[e] = hit > 0 ? 1 : std::min(l.ages[e] + 1, kLongAgo);
    }
    if (followers != nullptr) {
      followers->note(picks);
      followers->expect(l.rates, options_.backoff, std::span(chances_).first(n));
    }
    for (size_t e = 0; e < n; ++e) l.kinds[e] = kind_of(l.ages[e], l.rates[e], followers != nullptr ? chances_[e] : 0);
    for (const int32_t expert : picks) picked_[static_cast<size_t>(expert)] = 0;
  }

  void learn(Kind& kind, double hit) const {
    kind.seen += 1;
    kind.picked += hit;
    if (kind.seen > options_.memory) kind = {kind.seen / 2, kind.picked / 2};
  }

  double of(int layer, int expert) const { return value(layer, keys(layer)[static_cast<size_t>(expert)]); }

  ReuseOptions options_;
  double fade_, position_weight_ = 0;
  int at_ = 0;
  std::vector<Layer> layers_;
  std::vector<Followers> followers_;  // by layer; none if they are not looked at
  std::vector<double> chances_;       // of the layer under way, by expert
  std::array<Kind, kAges * kRates * kChances> kinds_;
  std::vector<char> picked_;  // of the row under way
};

}  // namespace

std::unique_ptr<Policy> make_reuse_policy(std::span<const LayerShape> shapes, const ReuseOptions& options) {
  return std::make_unique<ReusePolicy>(shapes, options);
}

}  // namespace moetier
