// The sampler's further steps, on distributions worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "engine/dry_penalty.h"
#include "engine/sampler.h"

namespace moetier {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// Nothing is on, and the temperature is 1.
SamplerOptions bare() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

/// What a token would be drawn from.
std::map<TokenId, double> draw_from(const SamplerOptions& o, const std::vector<float>& logits) {
  Sampler sampler(o);
  sampler.sample(logits);
  std::map<TokenId, double> out;
  for (const TokenChance& one : sampler.chances(100)) out[one.token] = one.probability;
  return out;
}

std::vector<TokenId> ids_of(const std::map<TokenId, double>& chances) {
  std::vector<TokenId> ids;
  for (const auto& [id, p] : chances) ids.push_back(id);
  return ids;
}

TEST(SamplerChain, TypicalKeepsWhatSurprisesAsMuchAsTheMean) {
  // Entropy: 0.4 ln 2.5 + 0.3 ln 3.33 + 0.2 ln 5 + 0.1 ln 10 = 1.2799. Surprises: 0.9163, 1.2040, 1.6094, 2.3026, so
  // distances 0.3636, 0.0759, 0.3296, 1.0227: tokens come in the order 1, 2, 0, 3 with sums 0.3, 0.5, 0.9, 1.
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  SamplerOptions o = bare();
  o.typical_p = 0.25f;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(1));
  o.typical_p = 0.45f;
  const auto two = draw_from(o, logits);
  EXPECT_THAT(ids_of(two), ElementsAre(1, 2));
  EXPECT_NEAR(two.at(1), 0.6, 1e-6);
  o.typical_p = 0.7f;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0, 1, 2));
  o.typical_p = 0.95f;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0, 1, 2, 3));
  o.typical_p = 0.25f;
  o.min_keep = 3;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0, 1, 2));
}

TEST(SamplerChain, TopNSigmaKeepsLogitsNearTheHighest) {
  // Mean 0, deviation sqrt((9 + 1 + 1 + 9) / 4) = 2.236.
  const std::vector<float> logits = {3, 1, -1, -3};
  SamplerOptions o = bare();
  o.top_n_sigma = 0.5f;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0));
  o.top_n_sigma = 1;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0, 1));
  o.top_n_sigma = 2;
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(0, 1, 2));
  // What is forbidden is in neither mean nor deviation.
  o.top_n_sigma = 1;
  o.suppress = {4};
  EXPECT_THAT(ids_of(draw_from(o, {3, 1, -1, -3, 50})), ElementsAre(0, 1));
}

TEST(SamplerChain, ADynamicTemperatureFollowsTheEntropy) {
  // Two equal tokens have the highest entropy there is: temperature 1 + 0.5. Far apart ones have none: 1 - 0.5.
  SamplerOptions o = bare();
  o.dynatemp_range = 0.5f;
  EXPECT_NEAR(draw_from(o, {0, 0}).at(0), 0.5, 1e-6);
  // p = 0.8, 0.2: entropy 0.5004 of ln 2, so a share of 0.72193; temperature 0.5 + 1 * 0.72193.
  const auto chances = draw_from(o, logits_of({0.8, 0.2}));
  const double expected = 1 / (1 + std::pow(0.25, 1 / 1.22193));
  EXPECT_NEAR(chances.at(0), expected, 1e-5);
  o.dynatemp_exponent = 2;  // share 0.52118
  EXPECT_NEAR(draw_from(o, logits_of({0.8, 0.2})).at(0), 1 / (1 + std::pow(0.25, 1 / 1.02118)), 1e-5);
  o.dynatemp_range = 5;  // never below 0: greedy where there is no entropy
  EXPECT_THAT(draw_from(o, {200, 0}), ElementsAre(Pair(0, 1.0)));
}

TEST(SamplerChain, XtcLeavesOutTheLikeliest) {
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.15, 0.05});
  SamplerOptions o = bare();
  o.xtc_probability = 1;
  o.xtc_threshold = 0.1f;  // 0, 1 and 2 reach it; the last of them stays
  EXPECT_THAT(ids_of(draw_from(o, logits)), ElementsAre(2, 3));
  EXPECT_NEAR(draw_from(o, logits).at(2), 0.75, 1e-6);
  o.xtc_threshold = 0.4f;  // only one reaches it
  EXPECT_EQ(draw_from(o, logits).size(), 4u);
  o.xtc_threshold = 0.51f;
  EXPECT_EQ(draw_from(o, logits).size(), 4u);
  o.xtc_threshold = 0.1f;
  o.min_keep = 3;  // two would be left
  EXPECT_EQ(draw_from(o, logits).size(), 4u);
  o.min_keep = 0;
  o.temperature = 0;
  EXPECT_THAT(draw_from(o, logits), ElementsAre(Pair(2, 1.0)));
  o.temperature = 1;
  o.xtc_probability = 0.25f;
  Sampler sampler(o);
  int left_out = 0;
  for (int i = 0; i < 2000; ++i) {
    sampler.sample(logits);
    left_out += sampler.chances(100).size() == 2 ? 1 : 0;
  }
  EXPECT_NEAR(left_out, 500, 80);
}

TEST(DryPenalty, GrowsWithWhatWouldBeRepeated) {
  // 1 2 3 7 | 1 2 3: going on with 7 would repeat a sequence whose first three tokens stand already.
  DryPenalty dry(0.8f, 1.75f, 2, -1, {});
  for (const TokenId token : {1, 2, 3, 7, 1, 2, 3}) dry.accept(token);
  std::vector<float> logits(8, 5.0f);
  dry.apply(logits);
  for (TokenId id = 0; id < 8; ++id) EXPECT_NEAR(logits[id], id == 7 ? 5 - 0.8 * 1.75 : 5, 1e-5) << id;
  // A breaker among them shortens what counts, to less than is allowed.
  DryPenalty broken(0.8f, 1.75f, 2, -1, {2});
  for (const TokenId token : {1, 2, 3, 7, 1, 2, 3}) broken.accept(token);
  std::vector<float> untouched(8, 5.0f);
  broken.apply(untouched);
  EXPECT_EQ(untouched, std::vector<float>(8, 5.0f));
  // In a window of six the first of the three is not seen: two in common.
  DryPenalty window(0.8f, 1.75f, 2, 6, {});
  for (const TokenId token : {9, 9, 9, 9, 9, 9, 9, 1, 2, 3, 7, 1, 2, 3}) window.accept(token);
  std::vector<float> shorter(10, 5.0f);
  window.apply(shorter);
  EXPECT_NEAR(shorter[7], 5 - 0.8, 1e-5);
  EXPECT_EQ(shorter[9], 5.0f);
}

TEST(DryPenalty, AgreesWithComparingByHand) {
  uint32_t state = 7;
  DryPenalty dry(1.0f, 1.5f, 1, -1, {3});
  std::vector<TokenId> history;
  for (int step = 0; step < 300; ++step) {
    state = state * 1664525u + 1013904223u;
    history.push_back(static_cast<TokenId>((state >> 24) % 5));
    dry.accept(history.back());
    std::vector<float> got(5, 0.0f), want(5, 0.0f);
    for (size_t at = 1; at < history.size(); ++at) {
      size_t common = 0;
      while (common < at && history[at - 1 - common] == history[history.size() - 1 - common] &&
             history[at - 1 - common] != 3) {
        ++common;
      }
      if (common < 1) continue;
      float& value = want[history[at]];
      value = std::min(value, -static_cast<float>(std::pow(1.5, std::min(static_cast<double>(common) - 1, 200.0))));
    }
    dry.apply(got);
    for (size_t id = 0; id < 5; ++id) ASSERT_NEAR(got[id], want[id], std::abs(want[id]) * 1e-5) << step;
  }
}

TEST(SamplerChain, TheOrderDecides) {
  // p = 0.5, 0.3, 0.2. Nucleus of 0.75 before the temperature: two. Behind a temperature of 5 all are alike: three.
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.2});
  SamplerOptions o = bare();
  o.temperature = 5;
  o.top_p = 0.75f;
  o.order = {SamplerStep::top_p, SamplerStep::temperature};
  EXPECT_EQ(draw_from(o, logits).size(), 2u);
  o.order = {SamplerStep::temperature, SamplerStep::top_p};
  EXPECT_EQ(draw_from(o, logits).size(), 3u);
  // What is not in it is not done.
  o.top_k = 1;
  o.order = {SamplerStep::top_p};
  EXPECT_NEAR(draw_from(o, logits).at(0), 0.625, 1e-6);
  o.order = {};
  EXPECT_EQ(draw_from(o, logits).size(), 3u);
  // Penalties behind the temperature take off what they say.
  o.order = {SamplerStep::temperature, SamplerStep::penalties};
  o.temperature = 0.5f;
  o.presence_penalty = 1;
  Sampler sampler(o);
  sampler.accept(0);
  sampler.sample(std::vector<float>{1, 1});
  EXPECT_NEAR(sampler.chance(0), 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(SamplerChain, IsTheShortWayWhereBothCanBeUsed) {
  uint32_t state = 3;
  std::vector<float> logits(3000);
  for (float& logit : logits) {
    state = state * 1664525u + 1013904223u;
    logit = static_cast<float>(state >> 8) / 4e6f;
  }
  for (const auto& [top_k, top_p, min_p] : {std::tuple(0, 1.0f, 0.0f), std::tuple(40, 0.95f, 0.05f),
                                            std::tuple(0, 0.9f, 0.0f), std::tuple(700, 1.0f, 0.1f)}) {
    SamplerOptions o;
    o.temperature = 0.7f;
    o.top_k = top_k;
    o.top_p = top_p;
    o.min_p = min_p;
    o.repeat_penalty = 1.1f;
    o.seed = 5;
    Sampler short_way(o);
    o.xtc_probability = 1e-30f;  // never happens, and is not the short way...
    o.xtc_threshold = 0.6f;      // ...nor draws a number
    Sampler chain(o);
    for (int i = 0; i < 100; ++i) {
      const TokenId token = short_way.sample(logits);
      ASSERT_EQ(chain.sample(logits), token);
      ASSERT_EQ(chain.chance(token), short_way.chance(token));
      short_way.accept(token);
      chain.accept(token);
    }
  }
}

TEST(SamplerChain, StepsHaveNames) {
  for (const SamplerStep step : default_sampler_order()) EXPECT_EQ(sampler_step(to_string(step)), step);
  EXPECT_EQ(sampler_step("typical_p"), SamplerStep::typical_p);
  EXPECT_EQ(sampler_step('k'), SamplerStep::top_k);
  EXPECT_FALSE(sampler_step("mirostat"));
  EXPECT_FALSE(sampler_step(""));
}

TEST(SamplerChain, RefusesNonsense) {
  const auto refused = [](auto change) {
    SamplerOptions o;
    change(o);
    EXPECT_THROW(Sampler{o}, Error);
  };
  refused([](SamplerOptions& o) { o.typical_p = 1.5f; });
  refused([](SamplerOptions& o) { o.top_n_sigma = std::nanf(""); });
  refused([](SamplerOptions& o) { o.dynatemp_range = -1; });
  refused([](SamplerOptions& o) { o.xtc_probability = 2; });
  refused([](SamplerOptions& o) { o.xtc_threshold = -0.1f; });
  refused([](SamplerOptions& o) { o.dry_base = 0.5f; });
  refused([](SamplerOptions& o) { o.dry_window = -2; });
  refused([](SamplerOptions& o) { o.min_keep = -1; });
}

}  // namespace
}  // namespace moetier
