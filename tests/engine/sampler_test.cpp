#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <numeric>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "engine/penalties.h"
#include "engine/random.h"

namespace moetier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

SamplerOptions plain(float temperature = 1.0f) {
  SamplerOptions o;
  o.temperature = temperature;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

std::map<TokenId, int> draw_many(const SamplerOptions& options, std::span<const float> logits, int n) {
  Sampler sampler(options);
  std::map<TokenId, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits)];
  return counts;
}

/// Probabilities at a temperature, in double with libm: independent of the sampler's own arithmetic.
std::vector<double> probabilities(std::span<const float> logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float l : logits) sum += p.emplace_back(std::exp(static_cast<double>(l) / temperature));
  for (double& value : p) value /= sum;
  return p;
}

/// Pearson's statistic of counts against probabilities.
double chi_square(const std::map<TokenId, int>& counts, const std::vector<double>& p, int n) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const auto found = counts.find(static_cast<TokenId>(i));
    const double got = found == counts.end() ? 0 : found->second;
    sum += (got - p[i] * n) * (got - p[i] * n) / (p[i] * n);
  }
  return sum;
}

/// Pseudo-random logits, roughly bell-shaped with the given spread.
std::vector<float> noise(size_t n, uint64_t seed, double spread = 3) {
  Random random(seed);
  std::vector<float> logits(n);
  for (float& l : logits) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += random.uniform() - 0.5;
    l = static_cast<float>(sum * spread);
  }
  return logits;
}

TEST(Random, KnownSequence) {
  // xoshiro256** seeded by SplitMix64(42): values computed by an independent script.
  Random random(42);
  EXPECT_EQ(random.next(), 0x15780b2e0c2ec716ull);
  EXPECT_EQ(random.next(), 0x6104d9866d113a7eull);
  EXPECT_EQ(random.next(), 0xae17533239e499a1ull);
  for (int i = 0; i < 1000; ++i) {
    const double u = random.uniform();
    EXPECT_GE(u, 0.0);
    EXPECT_LT(u, 1.0);
  }
}

TEST(Sampler, GreedyTakesTheHighestAndTiesGoToTheLowerId) {
  Sampler greedy(plain(0));
  EXPECT_EQ(greedy.sample(std::vector<float>{1, 5, 5, 2}), 1);
  EXPECT_EQ(greedy.sample(std::vector<float>{-3, -2, -kInf}), 1);
  EXPECT_EQ(greedy.sample(std::vector<float>{0, kInf, kInf}), 1);
  EXPECT_EQ(greedy.sample(std::vector<float>{kNaN, -7, kNaN, -6}), 3);
}

TEST(Sampler, NothingPossibleIsStillDeterministic) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerOptions o = plain(temperature);
    o.suppress = {0, 1};
    Sampler sampler(o);
    EXPECT_EQ(sampler.sample(std::vector<float>(5, kNaN)), 2);
    EXPECT_EQ(sampler.sample(std::vector<float>(5, -kInf)), 2);
    EXPECT_THROW(sampler.sample(std::vector<float>{1, 2}), Error);
    EXPECT_THROW(sampler.sample({}), Error);
  }
}

TEST(Sampler, NanAndInfinityAreNeverDrawnOrAlwaysDrawn) {
  Sampler sampler(plain());
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(sampler.sample(std::vector<float>{1, kNaN, 1, -kInf}) % 2, 1);
    EXPECT_EQ(sampler.sample(std::vector<float>{50, kInf, 3}), 1);
  }
}

TEST(Sampler, TinyTemperatureIsGreedyAndHugeIsUniform) {
  const std::vector<float> logits{1, 2, 3, 2.9f};
  EXPECT_THAT(draw_many(plain(1e-40f), logits, 50), testing::ElementsAre(testing::Pair(2, 50)));
  EXPECT_THAT(draw_many(plain(1e-3f), logits, 50), testing::ElementsAre(testing::Pair(2, 50)));
  const auto counts = draw_many(plain(1e9f), logits, 4000);
  EXPECT_LT(chi_square(counts, {0.25, 0.25, 0.25, 0.25}, 4000), 16.3);  // 0.1 % quantile, 3 degrees of freedom
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = noise(12, 7, 2);
  constexpr int kDraws = 40000;
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    SamplerOptions o = plain(temperature);
    o.seed = 11;
    const auto counts = draw_many(o, logits, kDraws);
    EXPECT_LT(chi_square(counts, probabilities(logits, temperature), kDraws), 31.3)
        << temperature;  // 0.1 %, 11 degrees
  }
}

TEST(Sampler, SameSeedSameTokensAndAnotherSeedDiffers) {
  const std::vector<float> logits = noise(3000, 3);
  const auto run = [&](uint64_t seed) {
    SamplerOptions o = plain();
    o.seed = seed;
    Sampler sampler(o);
    std::vector<TokenId> out;
    for (int i = 0; i < 50; ++i) out.push_back(sampler.sample(logits));
    return out;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

TEST(Sampler, ResetStartsAnew) {
  SamplerOptions o = plain();
  o.frequency_penalty = 2;
  Sampler sampler(o);
  const std::vector<float> logits = noise(100, 4);
  const auto run = [&] {
    std::vector<TokenId> out;
    for (int i = 0; i < 40; ++i) {
      out.push_back(sampler.sample(logits));
      sampler.accept(out.back());
    }
    return out;
  };
  const auto first = run();
  EXPECT_NE(run(), first);
  sampler.reset();
  EXPECT_EQ(run(), first);
}

TEST(Sampler, FiltersThatCutNothingChangeNothing) {
  const std::vector<float> logits = noise(2000, 9, 1);
  SamplerOptions wide = plain();
  wide.top_k = 2000;
  wide.min_p = 1e-30f;
  Sampler a(plain()), b(wide);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.sample(logits), b.sample(logits));
}

/// What a sampler can draw, found by hand from a full sort.
std::vector<TokenId> survivors(std::span<const float> logits, const SamplerOptions& o) {
  std::vector<TokenId> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < ids.size()) ids.resize(static_cast<size_t>(o.top_k));
  double total = 0;
  for (const TokenId id : ids) total += std::exp(static_cast<double>(logits[id] - logits[ids[0]]));
  double sum = 0;
  size_t keep = 0;
  while (keep < ids.size()) {
    const double w = std::exp(static_cast<double>(logits[ids[keep]] - logits[ids[0]]));
    if (o.min_p > 0 && w < static_cast<double>(o.min_p)) break;
    ++keep;
    sum += w;
    if (o.top_p < 1 && sum >= static_cast<double>(o.top_p) * total) break;
  }
  ids.resize(keep);
  return ids;
}

TEST(Sampler, TopKTopPMinPKeepExactlyTheRightTokens) {
  const std::vector<float> logits = noise(400, 21, 4);
  for (const int top_k : {0, 1, 7, 300}) {
    for (const float top_p : {1.0f, 0.6f, 0.0f}) {
      for (const float min_p : {0.0f, 0.2f, 1.0f}) {
        SamplerOptions o = plain(3.0f);  // hot, so that every survivor is soon drawn
        o.top_k = top_k;
        o.top_p = top_p;
        o.min_p = min_p;
        const std::vector<TokenId> allowed = survivors(logits, o);
        const auto counts = draw_many(o, logits, 600);
        for (const auto& [id, n] : counts) EXPECT_THAT(allowed, testing::Contains(id));
        if (allowed.size() <= 10) {
          EXPECT_EQ(counts.size(), allowed.size()) << top_k << ' ' << top_p << ' ' << min_p;
        }
      }
    }
  }
}

TEST(Sampler, NucleusIsFoundInWideFlatVocabularies) {
  // The nucleus of a flat distribution is larger than any first guess: all sizes of sorting are passed through.
  std::vector<float> logits(20000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) * 1e-6f;
  SamplerOptions o = plain();
  o.top_p = 0.9f;
  const std::vector<TokenId> allowed = survivors(logits, o);
  ASSERT_NEAR(static_cast<double>(allowed.size()), 18000, 200);
  const TokenId lowest = allowed.back();
  TokenId least = 20000;
  for (const auto& [id, n] : draw_many(o, logits, 100)) least = std::min(least, id);
  EXPECT_GE(least, lowest - 20);  // own exp and libm's agree to a part in 10^7
  EXPECT_LT(least, lowest + 1500);
}

TEST(Sampler, BiasAndSuppression) {
  SamplerOptions o = plain(0);
  o.logit_bias = {{0, 10.0f}, {1, -kInf}, {3, kInf}};
  o.suppress = {3};
  Sampler sampler(o);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 9, 8, 100}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, 9, 8, 100}), 2);
  EXPECT_THROW(sampler.sample(std::vector<float>{1, 2, 3}), Error);  // id 3 is outside
}

TEST(Sampler, PenaltiesLowerWhatWasSeen) {
  SamplerOptions o = plain(0);
  o.repeat_penalty = 2;
  Sampler repeat(o);
  repeat.accept(0);
  EXPECT_EQ(repeat.sample(std::vector<float>{3, 2}), 1);
  EXPECT_EQ(repeat.sample(std::vector<float>{5, 2}), 0);
  EXPECT_EQ(repeat.sample(std::vector<float>{-1, -1.5f}), 1);  // negative logits are multiplied

  o.repeat_penalty = 1;
  o.frequency_penalty = 0.5f;
  Sampler frequency(o);
  for (int i = 0; i < 3; ++i) frequency.accept(0);
  EXPECT_EQ(frequency.sample(std::vector<float>{3.4f, 2}), 1);
  EXPECT_EQ(frequency.sample(std::vector<float>{3.6f, 2}), 0);

  o.frequency_penalty = 0;
  o.presence_penalty = 1;
  Sampler presence(o);
  for (int i = 0; i < 3; ++i) presence.accept(0);
  EXPECT_EQ(presence.sample(std::vector<float>{2.9f, 2}), 1);
  EXPECT_EQ(presence.sample(std::vector<float>{3.1f, 2}), 0);
}

TEST(Sampler, PenaltyWindowForgets) {
  SamplerOptions o = plain(0);
  o.presence_penalty = 5;
  o.penalty_window = 2;
  Sampler sampler(o);
  const std::vector<float> logits{3, 2, 1, 0};
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), 1);
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(logits), 2);
  sampler.accept(2);  // 0 leaves the window
  EXPECT_EQ(sampler.sample(logits), 0);
  sampler.accept(-1);  // not a token
  EXPECT_EQ(sampler.sample(logits), 0);
}

TEST(Penalties, AgreeWithCountingByHand) {
  Random random(1);
  for (const int window : {-1, 0, 1, 5, 64}) {
    Penalties penalties(1.3f, 0.2f, 0.1f, window);
    std::vector<TokenId> history;
    for (int step = 0; step < 300; ++step) {
      const auto token = static_cast<TokenId>(random.next() % 40);
      history.push_back(token);
      penalties.accept(token);
      if (step % 7 != 0) continue;
      std::vector<float> got = noise(50, static_cast<uint64_t>(step)), want = got;
      const size_t from = window < 0 || history.size() < static_cast<size_t>(window) ? 0 : history.size() - window;
      std::map<TokenId, int> counts;
      for (size_t i = from; i < history.size(); ++i) ++counts[history[i]];
      for (const auto& [id, n] : counts) {
        float& l = want[id];
        l = l > 0 ? l / 1.3f : l * 1.3f;
        l = l - (static_cast<float>(n) * 0.1f + 0.2f);
      }
      penalties.apply(got);
      ASSERT_EQ(got, want) << window << ' ' << step;
    }
  }
}

/// Allows what its list has, and counts what it is told.
class ListConstraint final : public TokenConstraint {
 public:
  explicit ListConstraint(std::vector<TokenId> allowed) : allowed_(std::move(allowed)) {}
  void mask(std::span<float> logits) override {
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool open = std::find(allowed_.begin(), allowed_.end(), static_cast<TokenId>(i)) != allowed_.end();
      if (!open) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  void accept(TokenId) override { ++accepted; }
  bool complete() const override { return false; }
  bool finished() const override { return accepted >= 3; }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<ListConstraint>(*this); }
  int accepted = 0;

 private:
  std::vector<TokenId> allowed_;
};

TEST(Sampler, AConstraintForbidsBehindBiasAndBeforeFilters) {
  SamplerOptions o;
  o.temperature = 0;
  o.logit_bias = {{1, 100.0f}};
  o.suppress = {2};
  Sampler greedy(o);
  ListConstraint some({0, 2, 3});
  const std::vector<float> logits = {1, 2, 9, 0, 5};
  EXPECT_EQ(greedy.sample(logits), 1);
  EXPECT_EQ(greedy.sample(logits, &some), 0);
  o = {};
  o.top_k = 1;  // of what is allowed
  Sampler drawing(o);
  ListConstraint last({3});
  EXPECT_EQ(drawing.sample(logits, &last), 3);
  EXPECT_EQ(last.accepted, 0);  // told by whoever samples
  // Where no logit is finite the lowest allowed id is taken, and if there is none it is an error.
  const std::vector<float> nothing(5, std::nanf(""));
  EXPECT_EQ(drawing.sample(nothing, &last), 3);
  ListConstraint none({});
  EXPECT_THROW(drawing.sample(logits, &none), Error);
  EXPECT_THROW(greedy.sample(nothing, &none), Error);
}

TEST(Sampler, ABiasThatBansEveryTokenIsAnError) {
  SamplerOptions o;
  o.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}};
  o.suppress = {3};
  const std::vector<float> logits = {1, 2, 9, 4};
  for (const float temperature : {0.0f, 1.0f}) {
    o.temperature = temperature;
    Sampler sampler(o);
    try {
      sampler.sample(logits);
      FAIL() << "a banned token was chosen";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("ban all 4 tokens"), std::string::npos) << error.what();
    }
  }
  o.logit_bias.pop_back();
  Sampler one_left(o);
  EXPECT_EQ(one_left.sample(logits), 2);
}

TEST(Sampler, AConstraintThatForbidsNothingChangesNothing) {
  SamplerOptions o;
  o.seed = 5;
  Sampler with(o), without(o);
  std::vector<TokenId> ids(200);
  std::iota(ids.begin(), ids.end(), 0);
  ListConstraint all(ids);
  Random random(9);
  for (int n = 0; n < 50; ++n) {
    std::vector<float> logits(200);
    for (float& l : logits) l = static_cast<float>(random.uniform() * 8);
    EXPECT_EQ(with.sample(logits, &all), without.sample(logits));
  }
}

TEST(Sampler, RefusesNonsense) {
  const auto refused = [](auto change) {
    SamplerOptions o;
    change(o);
    EXPECT_THROW(Sampler{o}, Error);
  };
  refused([](SamplerOptions& o) { o.temperature = -1; });
  refused([](SamplerOptions& o) { o.temperature = kNaN; });
  refused([](SamplerOptions& o) { o.top_k = -1; });
  refused([](SamplerOptions& o) { o.top_p = 1.5f; });
  refused([](SamplerOptions& o) { o.top_p = kNaN; });
  refused([](SamplerOptions& o) { o.min_p = -0.1f; });
  refused([](SamplerOptions& o) { o.repeat_penalty = 0; });
  refused([](SamplerOptions& o) { o.presence_penalty = kInf; });
  refused([](SamplerOptions& o) { o.frequency_penalty = kNaN; });
  refused([](SamplerOptions& o) { o.penalty_window = -2; });
  refused([](SamplerOptions& o) { o.logit_bias = {{-1, 1.0f}}; });
  refused([](SamplerOptions& o) { o.logit_bias = {{1, kNaN}}; });
  refused([](SamplerOptions& o) { o.suppress = {-5}; });
}

}  // namespace
}  // namespace moetier
