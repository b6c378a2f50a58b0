#include "experts/tier_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "experts/belady.h"
#include "experts/slots.h"
#include "experts/synth_routing.h"
#include "experts/token_time.h"

namespace moetier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Pair = std::pair<int, int>;

std::vector<LayerShape> two_layers() {
  return {{3, 1, 4000, 4096}, {2, 1, 8000, 8192}};
}

TEST(TierPlan, AWholeOrderNamesEveryEntryOnce) {
  const auto shapes = two_layers();
  EXPECT_THAT(whole_order(shapes, {}), ElementsAre(Pair(0, 0), Pair(1, 0), Pair(0, 1), Pair(1, 1), Pair(0, 2)));
  EXPECT_THAT(whole_order(shapes, {{1, 1}, {0, 2}}),
              ElementsAre(Pair(1, 1), Pair(0, 2), Pair(0, 0), Pair(1, 0), Pair(0, 1)));
}

TEST(TierPlan, DenseWeightsGoToTheDeviceFirst) {
  const auto shapes = two_layers();
  TierPlanInput input;
  input.shapes = shapes;
  input.dense = 1000;
  input.order = whole_order(shapes, {});
  input.device = 1000 + 4000 + 8000 + 3999;
  input.resident = true;
  TierPlan plan = plan_tiers(input);
  EXPECT_TRUE(plan.dense_on_device);
  EXPECT_THAT(plan.device, ElementsAre(Pair(0, 0), Pair(1, 0)));
  EXPECT_EQ(plan.device_bytes, 12000u);
  EXPECT_THAT(plan.host, ElementsAre(Pair(0, 1), Pair(1, 1), Pair(0, 2)));
  EXPECT_EQ(plan.file_entries, 0);
  input.device = 999;  // then nothing goes there
  plan = plan_tiers(input);
  EXPECT_FALSE(plan.dense_on_device);
  EXPECT_THAT(plan.device, IsEmpty());
  EXPECT_THAT(plan.host, SizeIs(5));
}

TEST(TierPlan, WholeLayersComeFromTheEnd) {
  const auto shapes = two_layers();
  TierPlanInput input;
  input.shapes = shapes;
  input.order = whole_order(shapes, {});
  input.device = 16000 + 4000;
  input.whole_layers = 2;
  const TierPlan plan = plan_tiers(input);
  EXPECT_EQ(plan.whole_layers, 1);  // the other one would not fit
  EXPECT_THAT(plan.device, ElementsAre(Pair(1, 0), Pair(1, 1), Pair(0, 0)));
  EXPECT_EQ(plan.file_entries, 2);
  EXPECT_EQ(plan.file_bytes, 8000u);
}

TEST(TierPlan, TheHostHoldsWhatItsSlotsHold) {
  const TraceRun run = synth_run({}, 1);
  TierPlanInput input;
  input.shapes = run.shapes;
  input.host = run.bank_bytes() / 4;
  input.order = whole_order(run.shapes, rank_picks({&run, 1}));
  const TierPlan plan = plan_tiers(input);
  const uint64_t room = engine_cache_bytes(run.shapes, input.host);
  EXPECT_LE(plan.host.size() * 4096, room);
  EXPECT_GT((plan.host.size() + 1) * 4096, room);
  EXPECT_EQ(plan.host_bytes + plan.file_bytes, run.bank_bytes());
}

TEST(TierPlan, HitsAreTheSimulators) {
  const TraceRun run = synth_run({}, 2);
  TierPlanInput input;
  input.shapes = run.shapes;
  input.host = run.bank_bytes() / 4;
  input.order = whole_order(run.shapes, {});
  const TierPlan plan = plan_tiers(input);
  const TierHits hits = expected_hits(run, input, plan, CachePolicy::standard);
  const uint64_t bytes = engine_cache_bytes(run.shapes, input.host);
  const SimulationResult straight =
      simulate(run, make_policy(CachePolicy::standard, run.shapes), make_extent_slots(run.shapes, bytes, bytes));
  EXPECT_NEAR(100 * hits.host, straight.hit_percent(), 1e-9);
  EXPECT_EQ(hits.device, 0);
  EXPECT_NEAR(hits.file + hits.host, 1, 1e-12);
  EXPECT_NEAR(hits.compute_bytes, static_cast<double>(run.cycle_bytes()), 1);
}

TEST(TierPlan, WhatTheDeviceServesIsNotLookedForBelow) {
  const TraceRun run = synth_run({}, 3);
  TierPlanInput input;
  input.shapes = run.shapes;
  input.host = run.bank_bytes() / 8;
  input.order = whole_order(run.shapes, rank_picks({&run, 1}));
  const TierHits without = expected_hits(run, input, plan_tiers(input), CachePolicy::standard);
  input.device = run.bank_bytes() / 4;
  const TierPlan plan = plan_tiers(input);
  const TierHits with = expected_hits(run, input, plan, CachePolicy::standard);
  EXPECT_GT(with.device, 0.25);  // the hottest quarter serves more than a quarter
  EXPECT_LT(with.file, without.file);
  EXPECT_LT(with.read_bytes, without.read_bytes);
  EXPECT_NEAR(with.device + with.host + with.file, 1, 1e-12);
  // Everything on the device leaves nothing to find elsewhere.
  input.device = run.bank_bytes();
  EXPECT_DOUBLE_EQ(expected_hits(run, input, plan_tiers(input), CachePolicy::standard).device, 1);
  input.device.reset();
  input.resident = true;
  EXPECT_DOUBLE_EQ(expected_hits(run, input, plan_tiers(input), CachePolicy::standard).host, 1);
}

TEST(TierPlan, WithoutATraceEveryExpertIsAsLikely) {
  std::vector<LayerShape> shapes(4, {8, 2, 4096, 4096});
  TierPlanInput input;
  input.shapes = shapes;
  input.order = whole_order(shapes, {});
  input.device = 8 * 4096;  // two of eight in each layer
  const TierHits hits = even_hits(input, plan_tiers(input));
  EXPECT_DOUBLE_EQ(hits.device, 0.25);
  EXPECT_DOUBLE_EQ(hits.file, 0.75);
  EXPECT_DOUBLE_EQ(hits.read_bytes, 0.75 * 4 * 2 * 4096);
}

TEST(TokenTime, AddsUp) {
  const TokenBytes bytes{100e6, 400e6, 50e6};
  const TokenTime time = token_time(bytes, {10e9, 20e9, 1e9});
  EXPECT_TRUE(time.known);
  EXPECT_DOUBLE_EQ(time.dense, 0.01);
  EXPECT_DOUBLE_EQ(time.experts, 0.02);
  EXPECT_DOUBLE_EQ(time.reads, 0.05);
  EXPECT_DOUBLE_EQ(time.best(), 0.06);
  EXPECT_DOUBLE_EQ(time.worst(), 0.08);
  EXPECT_DOUBLE_EQ(time.expected(), 0.07);
  EXPECT_FALSE(token_time(bytes, {10e9, 20e9, 0}).known);
  EXPECT_TRUE(token_time({1, 1, 0}, {10e9, 20e9, 0}).known);  // nothing is read
  EXPECT_THAT(explain(bytes, {10e9, 20e9, 1e9}), HasSubstr("70.00 ms: 14.29 tok/s (12.50 to 16.67)"));
  EXPECT_THAT(explain(bytes, {10e9, 20e9, 0}), HasSubstr("at an unknown rate"));
  const TokenBytes deep{100e6, 400e6, 50e6, 50};
  const double rest = 50 * kLayerSeconds;
  EXPECT_DOUBLE_EQ(token_time(deep, {10e9, 20e9, 1e9}).expected(), 0.07 + rest);
  EXPECT_DOUBLE_EQ(token_time(deep, {10e9, 20e9, 1e9}).best(), 0.06 + rest);
  EXPECT_THAT(explain(deep, {10e9, 20e9, 1e9}), HasSubstr("50 layers x"));
}

TEST(Simulator, ATextIsPlayedTokenByTokenIfAskedFor) {
  RoutingTrace trace;
  trace.n_layer = 1;
  trace.n_expert = 4;
  trace.top_k = 1;
  trace.entry_bytes = {4096};
  for (int32_t t = 0; t < 5; ++t) {
    trace.routings.push_back({t, 0, true, static_cast<uint32_t>(t), 1});
    trace.ids.push_back(t % 4);
    trace.weights.push_back(1);
  }
  trace.tokens = 5;
  EXPECT_EQ(run_of(trace, "t").prompt_tokens, 5);
  EXPECT_EQ(run_of(trace, "t").steps.size(), 1u);
  const TraceRun played = run_of(trace, "t", {.text_as_decoded = true});
  EXPECT_EQ(played.decode_tokens, 5);
  EXPECT_EQ(played.prompt_tokens, 0);
  EXPECT_EQ(played.steps.size(), 5u);
  trace.routings.back().prompt = false;  // it has a decoded token: then its prompt is one
  EXPECT_EQ(run_of(trace, "t", {.text_as_decoded = true}).prompt_tokens, 4);
}

}  // namespace
}  // namespace moetier
