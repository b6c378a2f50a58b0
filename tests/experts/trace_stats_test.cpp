#include "experts/trace_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

/// One layer (number 3) of 16 experts; a token per list of picks.
RoutingTrace trace_of(const std::vector<std::vector<int32_t>>& tokens, int prompt = 0) {
  RoutingTrace trace;
  trace.n_layer = 4;
  trace.n_expert = 16;
  trace.told = true;
  trace.entry_bytes = {0, 0, 0, 1000};
  for (const std::vector<int32_t>& picks : tokens) {
    const auto token = static_cast<int32_t>(trace.tokens++);
    trace.top_k = std::max(trace.top_k, static_cast<int>(picks.size()));
    trace.routings.push_back(
        {token, 3, token < prompt, static_cast<uint32_t>(trace.ids.size()), static_cast<uint32_t>(picks.size())});
    trace.ids.insert(trace.ids.end(), picks.begin(), picks.end());
    trace.weights.resize(trace.ids.size(), 0);
  }
  return trace;
}

TEST(TraceStats, AreCountedByHand) {
  const TraceStats s = trace_stats(trace_of({{0, 1}, {1, 2}, {1, 0}, {1, 3}}), "t");
  ASSERT_EQ(s.layers.size(), 1u);
  const TraceStats::Layer& l = s.layers[0];
  EXPECT_EQ(l.layer, 3);
  EXPECT_EQ(l.tokens, 4);
  EXPECT_EQ(l.picks, 8u);
  EXPECT_EQ(l.used, 4);
  EXPECT_EQ(l.entry_bytes, 1000u);
  // Picks by expert: 4 of 1, 2 of 0, 1 of 2, 1 of 3.
  EXPECT_DOUBLE_EQ(l.hottest[0], 4.0 / 8);  // of 1/16: one expert
  EXPECT_DOUBLE_EQ(l.hottest[1], 6.0 / 8);
  EXPECT_DOUBLE_EQ(l.hottest[2], 8.0 / 8);
  const double entropy = 0.5 * std::log(2.0) + 0.25 * std::log(4.0) + 2 * 0.125 * std::log(8.0);
  EXPECT_NEAR(l.effective, std::exp(entropy), 1e-12);
  // Of the 6 picks behind the first token, 1 was picked by the token before three times.
  EXPECT_DOUBLE_EQ(l.overlap, 3.0 / 6);
  EXPECT_DOUBLE_EQ(s.overlap[0], 3.0 / 6);
  EXPECT_DOUBLE_EQ(s.overlap[1], (2 + 1) / 4.0);  // {0,1} and {1,0}; {1,2} and {1,3}
  EXPECT_DOUBLE_EQ(s.overlap[2], -1);             // nothing is four tokens apart
  // Sum of squared shares of tokens, over the picks of a token: (1 + 1/4 + 1/16 + 1/16) / 2.
  EXPECT_DOUBLE_EQ(l.independent, 1.375 / 2);
  EXPECT_DOUBLE_EQ(s.independent, 1.375 / 2);
  EXPECT_EQ(s.first_picks, 4u);
  EXPECT_EQ(s.reuse[0], 3u);  // 1, three times
  EXPECT_EQ(s.reuse[1], 1u);  // 0, two tokens ago
  ASSERT_EQ(s.unions.size(), 3u);
  EXPECT_DOUBLE_EQ(s.unions[0].experts, 2);
  EXPECT_DOUBLE_EQ(s.unions[1].experts, 3);  // {0,1,2} and {0,1,3}
  EXPECT_DOUBLE_EQ(s.unions[2].experts, 4);
  EXPECT_DOUBLE_EQ(s.unions[2].bytes, 4000);
}

TEST(TraceStats, ReuseIsSortedByPowersOfTwo) {
  std::vector<std::vector<int32_t>> tokens = {{5}};
  for (int i = 0; i < 4; ++i) tokens.push_back({1});
  tokens.push_back({5});  // five tokens ago
  const TraceStats s = trace_stats(trace_of(tokens), "t");
  EXPECT_EQ(s.reuse[0], 3u);
  EXPECT_EQ(s.reuse[3], 1u);  // 5 to 8
  EXPECT_EQ(s.first_picks, 2u);
  uint64_t sum = s.first_picks;
  for (const uint64_t n : s.reuse) sum += n;
  EXPECT_EQ(sum, s.picks);
}

TEST(TraceStats, TakeOnePhase) {
  const RoutingTrace trace = trace_of({{0, 1}, {2, 3}, {2, 3}}, 1);
  EXPECT_EQ(trace_stats(trace, "t", TracePhase::prompt).picks, 2u);
  const TraceStats decoded = trace_stats(trace, "t", TracePhase::decoded);
  EXPECT_EQ(decoded.picks, 4u);
  EXPECT_DOUBLE_EQ(decoded.overlap[0], 1);
  EXPECT_THAT(error_of([&] {
                trace_stats(trace_of({{0, 1}}), "t.csv", TracePhase::prompt);
              }),
              HasSubstr("t.csv has no prompt tokens"));
}

}  // namespace
}  // namespace moetier
