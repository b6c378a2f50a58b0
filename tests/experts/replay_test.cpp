#include "experts/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/error_of.h"

namespace moetier {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

RoutingTrace parse(const std::string& rows) {
  const std::string text =
      "# model=m arch=a n_layer=6 n_expert=8 n_expert_used=2\nphase,step,layer,expert,weight\n" + rows;
  return parse_trace(std::as_bytes(std::span(text.data(), text.size())), "t.csv");
}

/// MoE layers 2, 3 and 5; one prompt token, two decoded whole ones, one with a layer missing, one with a pick missing.
RoutingTrace example() {
  std::string rows;
  const auto add = [&](int phase, int step, int layer, int a, int b, float wa, float wb) {
    for (const auto& [id, w] : {std::pair(a, wa), std::pair(b, wb)}) {
      rows += std::to_string(phase) + "," + std::to_string(step) + "," + std::to_string(layer) + "," +
              std::to_string(id) + "," + std::to_string(w) + "\n";
    }
  };
  for (const int layer : {2, 3, 5}) add(0, 0, layer, layer, 0, 1, 1);
  for (const int layer : {2, 3, 5}) add(1, 1, layer, layer, 1, 3, 1);
  for (const int layer : {2, 3}) add(1, 2, layer, 6, 7, 1, 1);
  for (const int layer : {2, 3, 5}) add(1, 3, layer, layer - 1, 7, 0, 0);
  add(1, 4, 2, 6, 7, 1, 1);
  rows += "1,4,3,6,1\n";
  add(1, 4, 5, 6, 7, 1, 1);
  return parse(rows);
}

TEST(Replay, LayersAreStretchedAndTokensWrap) {
  const auto replay = replay_trace(example(), "t.csv", 7, 8);
  EXPECT_EQ(replay->top_k(), 2);
  EXPECT_EQ(replay->tokens(), 2);
  const int trace_layer[] = {2, 2, 2, 3, 3, 5, 5};  // floor(l * 3 / 7)
  for (int layer = 0; layer < 7; ++layer) {
    for (const int64_t token : {int64_t{0}, int64_t{2}, int64_t{1'000'000'000'000}}) {
      const auto p = replay->picks(layer, token);
      EXPECT_THAT(p.ids, ElementsAre(trace_layer[layer], 1));
      EXPECT_THAT(p.weights, ElementsAre(0.75f, 0.25f));
    }
    const auto p = replay->picks(layer, 5);
    EXPECT_THAT(p.ids, ElementsAre(trace_layer[layer] - 1, 7));
    EXPECT_THAT(p.weights, ElementsAre(0.5f, 0.5f));  // unknown ones
  }
  EXPECT_THAT(replay->describe(), HasSubstr("t.csv: 2 tokens, 3 layers, top-2"));
}

TEST(Replay, FewerLayersThanTheTraceAndItsPrompt) {
  const auto replay = replay_trace(example(), "t.csv", 2, 8, false);
  EXPECT_EQ(replay->tokens(), 3);
  EXPECT_THAT(replay->picks(0, 0).ids, ElementsAre(2, 0));
  EXPECT_THAT(replay->picks(1, 0).ids, ElementsAre(3, 0));
  EXPECT_THAT(replay->picks(1, 1).ids, ElementsAre(3, 1));
}

TEST(Replay, ErrorsSayWhatDoesNotFit) {
  EXPECT_THAT(error_of([] { replay_trace(example(), "t.csv", 2, 16); }),
              HasSubstr("t.csv was recorded with 8 experts in a layer, and the model has 16"));
  EXPECT_THAT(error_of([] { replay_trace(parse("0,0,0,1,1\n"), "t.csv", 2, 8); }), HasSubstr("no decoded token"));
  EXPECT_THAT(error_of([] { replay_trace(example(), "t.csv", 2, 8)->picks(2, 0); }), HasSubstr("MoE layer 2"));
  // A trace that does not tell n_expert needs only ids that the model has.
  RoutingTrace untold = example();
  untold.told = false;
  EXPECT_NE(replay_trace(untold, "t.bin", 2, 16), nullptr);
  EXPECT_THAT(error_of([&] { replay_trace(untold, "t.bin", 2, 4); }), HasSubstr("8 experts in a layer or more"));
}

TEST(RandomRouting, IsUniformAndRepeatable) {
  const auto a = random_routing(1, 4, 16, 4), b = random_routing(1, 4, 16, 4), c = random_routing(2, 4, 16, 4);
  std::vector<int> count(16);
  int differs = 0;
  constexpr int kTokens = 2000;
  for (int token = kTokens - 1; token >= 0; --token) b->picks(3, token);  // what was asked before does not matter
  for (int token = 0; token < kTokens; ++token) {
    for (int layer = 0; layer < 4; ++layer) {
      const auto p = a->picks(layer, token), q = b->picks(layer, token), r = c->picks(layer, token);
      EXPECT_TRUE(std::equal(p.ids.begin(), p.ids.end(), q.ids.begin(), q.ids.end()));
      differs += std::equal(p.ids.begin(), p.ids.end(), r.ids.begin(), r.ids.end()) ? 0 : 1;
      EXPECT_EQ(std::set<int32_t>(p.ids.begin(), p.ids.end()).size(), 4u);
      EXPECT_THAT(p.weights, Each(0.25f));
      for (const int32_t id : p.ids) ++count.at(static_cast<size_t>(id));
    }
  }
  // Each is picked 2000 * 4 * 4 / 16 = 2000 times, with a standard deviation of 39.
  for (const int n : count) EXPECT_NEAR(n, 2000, 200);
  EXPECT_GT(differs, kTokens * 4 * 9 / 10);
  EXPECT_EQ(a->tokens(), 0);
}

TEST(RandomRouting, TakesAllOrRefuses) {
  const auto all = random_routing(7, 1, 5, 5);
  const auto p = all->picks(0, 9);
  EXPECT_EQ(std::set<int32_t>(p.ids.begin(), p.ids.end()), (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_THAT(error_of([] { random_routing(7, 1, 5, 6); }), HasSubstr("6 of 5 experts"));
  EXPECT_THAT(error_of([] { random_routing(7, 1, 5, 0); }), HasSubstr("0 of 5 experts"));
}

}  // namespace
}  // namespace moetier
