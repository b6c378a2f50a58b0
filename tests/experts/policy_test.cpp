#include "experts/policy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "experts/belady.h"
#include "experts/heat.h"
#include "experts/policy_adaptive.h"
#include "experts/simulator.h"
#include "synth_routing.h"

namespace moetier {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::vector<LayerShape> small_layers(int layers, int experts) {
  return std::vector<LayerShape>(static_cast<size_t>(layers), {experts, 1, 4096, 4096});
}

void token(CacheTable& table, const std::vector<int32_t>& by_layer) {
  for (size_t l = 0; l < by_layer.size(); ++l) {
    table.visit(static_cast<int>(l), std::vector<int32_t>{by_layer[l]}, 1);
    table.end_visit();
  }
}

TEST(Heat, HalvesInAHalfLifeAndNeverOverflows) {
  const auto shapes = small_layers(2, 4);
  Heat heat(shapes, 8);
  heat.add(0, 1);
  heat.advance(0, 8);
  EXPECT_NEAR(heat.at(0, 1), 0.5, 1e-12);
  EXPECT_EQ(heat.at(1, 1), 0);
  heat.add(0, 2, 8);  // a pick 8 tokens back
  EXPECT_NEAR(heat.at(0, 2), 0.5, 1e-12);
  heat.advance(0, 1000000);
  heat.add(0, 3);
  EXPECT_NEAR(heat.at(0, 3), 1, 1e-12);
  EXPECT_LT(heat.at(0, 1), 1e-6);
  Heat rows(shapes, 8);
  rows.add_rows(0, std::vector<int32_t>{0, 1, 0, 2}, 2);
  EXPECT_NEAR(rows.at(0, 0), 1 + std::exp2(-1.0 / 8), 1e-12);
  EXPECT_NEAR(rows.at(0, 1), std::exp2(-1.0 / 8), 1e-12);
  EXPECT_NEAR(rows.at(0, 2), 1, 1e-12);
}

TEST(Policy, LruOrdersByTheLastPick) {
  const auto shapes = small_layers(1, 4);
  const auto lru = make_policy(CachePolicy::lru, shapes);
  lru->touch(0, std::vector<int32_t>{2, 0, 1, 2}, 2);
  const auto keys = lru->keys(0);
  EXPECT_LT(keys[3], keys[0]);
  EXPECT_LT(keys[0], keys[1]);
  EXPECT_LT(keys[1], keys[2]);
}

TEST(Policy, PinnedEntriesStay) {
  const auto shapes = small_layers(1, 8);
  const std::vector<std::pair<int, int>> profile = {{0, 7}, {0, 6}};
  CacheTable table(shapes, make_policy(CachePolicy::pinned, shapes, profile), make_byte_slots(shapes, 3 * 4096));
  table.prefill(profile);
  for (int e = 0; e < 6; ++e) token(table, {e});
  EXPECT_EQ(table.held(0), (std::vector<int32_t>{5, 6, 7}));
  CacheTable full(shapes, make_policy(CachePolicy::pinned, shapes, profile), make_byte_slots(shapes, 2 * 4096));
  full.prefill(profile);
  EXPECT_EQ(full.visit(0, std::vector<int32_t>{1}, 1).placements[0].outcome, Outcome::bypassed);
  EXPECT_EQ(full.held(0), (std::vector<int32_t>{6, 7}));
}

/// Half-life so long that heats are counts.
AdaptiveOptions counting() {
  AdaptiveOptions options;
  options.half_life = 1e12;
  return options;
}

TEST(Adaptive, FillsFreeSlotsEveryEightTokensAndSwapsEveryThirtyTwo) {
  const auto shapes = small_layers(1, 8);
  CacheTable table(shapes, make_adaptive_policy(shapes, counting()), make_byte_slots(shapes, 2 * 4096));
  // Tokens 0-7: expert 0 five times, 1 twice, 2 once. A miss takes no slot.
  for (const int e : {0, 0, 0, 0, 0, 1, 1, 2}) token(table, {e});
  EXPECT_EQ(table.held_count(), 0);
  EXPECT_EQ(table.counters().misses, 8u);
  // Token 8 begins with a round: the two hottest come in.
  const Visit& fill = table.visit(0, std::vector<int32_t>{3}, 1);
  ASSERT_EQ(fill.fills.size(), 2u);
  EXPECT_EQ(fill.fills[0].expert, 0);
  EXPECT_EQ(fill.fills[1].expert, 1);
  // Tokens 9-31: expert 3 up to 5 picks in all, the others to 4; 0 keeps 5, 1 has 2. Only 3 could come, over 1, and
  // needs more than 1.5 * 2 + 2 = 5: it has exactly that.
  for (const int e : {3, 3, 3, 3}) token(table, {e});
  for (const int e : {4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 0, 0, 0}) token(table, {e});
  const Visit& quiet = table.visit(0, std::vector<int32_t>{3}, 1);  // token 32
  EXPECT_TRUE(quiet.fills.empty());
  // Token 64: expert 3 has 6 picks, more than 5.
  for (int i = 0; i < 31; ++i) token(table, {0});
  const Visit& swap = table.visit(0, std::vector<int32_t>{0}, 1);
  ASSERT_EQ(swap.fills.size(), 1u);
  EXPECT_EQ(swap.fills[0].expert, 3);
  EXPECT_EQ(table.held(0), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(table.counters().swaps, 3u);
  EXPECT_EQ(table.counters().evictions, 1u);
}

TEST(Adaptive, CountsAnExpertOncePerVisitAndLeavesLargeVisitsOut) {
  const auto shapes = small_layers(1, 4);
  CacheTable table(shapes, make_adaptive_policy(shapes, counting()), make_byte_slots(shapes, 4096));
  table.visit(0, std::vector<int32_t>(33, 1), 33);  // too large to count
  table.visit(0, std::vector<int32_t>(6, 2), 6);
  table.visit(0, std::vector<int32_t>{3}, 1);
  table.visit(0, std::vector<int32_t>{3}, 1);
  const Visit& round = table.rebalance(5);
  ASSERT_EQ(round.fills.size(), 1u);
  EXPECT_EQ(round.fills[0].expert, 3);
  EXPECT_TRUE(table.rebalance(0).fills.empty());
}

TEST(Adaptive, LeavesLayersHeldWholeAlone) {
  const std::vector<LayerShape> shapes = {{2, 1, 4096, 4096}, {4, 1, 4096, 4096}};
  CacheTable table(shapes, make_adaptive_policy(shapes, counting()), make_byte_slots(shapes, 3 * 4096));
  table.prefill(std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}});
  for (int i = 0; i < 20; ++i) token(table, {0, i < 12 ? 1 : 2});
  const Visit& round = table.rebalance(8);
  ASSERT_EQ(round.fills.size(), 1u);  // over entry (1, 0); entry (0, 1), as cold, stays
  EXPECT_EQ(table.held(0), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(table.held(1), (std::vector<int32_t>{1}));
}

TEST(Adaptive, AHandfulOfSwapsAtMost) {
  const auto shapes = small_layers(1, 64);
  CacheTable table(shapes, make_adaptive_policy(shapes, counting()), make_byte_slots(shapes, 32 * 4096));
  std::vector<std::pair<int, int>> cold;
  for (int e = 0; e < 32; ++e) cold.emplace_back(0, e);
  table.prefill(cold);
  for (int i = 0; i < 3 * 32; ++i) token(table, {32 + i % 32});
  EXPECT_EQ(table.rebalance(5).fills.size(), 5u);
  EXPECT_EQ(table.rebalance(100).fills.size(), 27u);
  EXPECT_EQ(table.rebalance(100).fills.size(), 0u);
}

double hits(const TraceRun& run, CachePolicy policy, double bytes) {
  const auto budget = static_cast<uint64_t>(bytes);
  return simulate(run, make_policy(policy, run.shapes), make_byte_slots(run.shapes, budget)).hit_percent();
}

/// By how much the default policy hits more than LRU, in points, at so many token cycles.
double gain(const TraceRun& run, double cycles) {
  const double bytes = cycles * static_cast<double>(run.cycle_bytes());
  return hits(run, CachePolicy::standard, bytes) - hits(run, CachePolicy::lru, bytes);
}

TEST(DefaultPolicy, FollowsPopularityRecencyAndNeither) {
  struct Case {
    RoutingHabits habits;
    double worst, mean;
  };
  const Case cases[] = {
      {{.skew = 1.2, .recency = 0.1}, -0.3, 3.0},              // popular experts
      {{.skew = 0.3, .recency = 0.7, .reach = 4}, -0.3, 0.5},  // the last tokens' experts
      {{.top_k = 2, .skew = 1.0, .recency = 0.3}, -0.3, 3.0},  // few picks
      {{.skew = 0, .recency = 0}, -1.0, 0.0},                  // uniform: nothing to be learned
  };
  for (const Case& c : cases) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const TraceRun run = synth_run(c.habits, seed);
      double sum = 0;
      int n = 0;
      for (const double cycles : {1.0, 1.3, 1.7, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0}) {
        const double its = gain(run, cycles);
        EXPECT_GE(its, c.worst) << "skew " << c.habits.skew << " at " << cycles << " cycles";
        sum += its;
        ++n;
      }
      EXPECT_GE(sum / n, c.mean) << "skew " << c.habits.skew << " recency " << c.habits.recency;
    }
  }
}

TEST(DefaultPolicy, HasNoCliff) {
  const TraceRun run = synth_run({.skew = 1.0, .recency = 0.3}, 3);
  const double bytes = 0.8 * static_cast<double>(run.cycle_bytes());
  EXPECT_LT(hits(run, CachePolicy::lru, bytes), 1.0);
  EXPECT_GT(hits(run, CachePolicy::standard, bytes), 20.0);
}

std::string shared_trace(const std::string& name) {
  const char* const env = std::getenv("MOETIER_SHARED");
  const std::string root = env != nullptr ? env : MOETIER_SOURCE_DIR "/../shared";
  return root + "/traces/" + name + ".route.csv";
}

class RecordedTrace : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = shared_trace(GetParam());
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "the recorded trace " << path << " is not here";
    trace_ = read_trace(path);
  }
  RoutingTrace trace_;
};

TEST_P(RecordedTrace, TheDefaultBeatsLru) {
  const TraceRun run = run_of(trace_, GetParam());
  for (const double mib : {1000, 1500, 2000, 3000, 4000}) {
    const double bytes = mib * static_cast<double>(kMiB);
    const double its = hits(run, CachePolicy::standard, bytes) - hits(run, CachePolicy::lru, bytes);
    EXPECT_GE(its, mib < 4000 ? 1.5 : 1.0) << mib << " MiB";
  }
  EXPECT_GT(hits(run, CachePolicy::standard, 750.0 * static_cast<double>(kMiB)), 30.0);
}

/// Mean hit rate over 1000 to 4000 MiB.
template <typename Make>
double mean_hits(const TraceRun& run, Make make) {
  double sum = 0;
  for (const uint64_t mib : {1000, 2000, 3000, 4000})
    sum += simulate(run, make(), make_byte_slots(run.shapes, mib * kMiB)).hit_percent() / 4;
  return sum;
}

TEST_P(RecordedTrace, TheDefaultClosesAThirdOfTheGapToBelady) {
  const TraceRun run = run_of(trace_, GetParam());
  const auto of = [&](CachePolicy kind) { return mean_hits(run, [&] { return make_policy(kind, run.shapes); }); };
  const double lru = of(CachePolicy::lru), best = mean_hits(run, [&] { return make_belady_policy(run); });
  EXPECT_GE((of(CachePolicy::standard) - lru) / (best - lru), 1.0 / 3);
  EXPECT_GE(of(CachePolicy::standard), of(CachePolicy::reuse) + 0.5);
}

/// The layers of a trace that `take` chooses, by place.
template <typename Take>
RoutingTrace slice(const RoutingTrace& trace, Take take) {
  RoutingTrace its = trace;
  its.routings.clear();
  for (const Routing& r : trace.routings) {
    if (take(r.layer)) its.routings.push_back(r);
  }
  return its;
}

TEST_P(RecordedTrace, TheDefaultIsNeverMuchBelowLru) {
  const int first = (trace_.n_layer - 12) / 2;
  const RoutingTrace traces[] = {trace_, slice(trace_, [](int l) { return l < 12; }),
                                 slice(trace_, [&](int l) { return l >= first && l < first + 12; }),
                                 slice(trace_, [](int l) { return l % 4 == 0; })};
  for (size_t i = 0; i < std::size(traces); ++i) {
    const TraceRun run = run_of(traces[i], GetParam());
    for (double cycles = 1; cycles <= 12; cycles += i == 0 ? 1.0 : 0.5)
      EXPECT_GE(gain(run, cycles), -0.3) << "slice " << i << " at " << cycles << " cycles";
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, RecordedTrace, ::testing::Values("qwen", "gemma"),
                         [](const auto& its) { return std::string(its.param); });

}  // namespace
}  // namespace moetier
