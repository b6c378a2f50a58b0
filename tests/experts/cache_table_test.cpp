#include "experts/cache_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "cache_model.h"
#include "support/allocations.h"

namespace moetier {
namespace {

constexpr auto kAll = kCachePolicies;
constexpr uint64_t kBlock = 4096;

std::vector<LayerShape> equal_layers(int layers, int experts, int top_k) {
  return std::vector<LayerShape>(static_cast<size_t>(layers), {experts, top_k, kBlock, kBlock});
}

/// Every expert once in ascending order: the worst for LRU.
void cycle_tokens(CacheTable& table, int layers, int experts, int tokens) {
  for (int t = 0; t < tokens; ++t) {
    for (int l = 0; l < layers; ++l) {
      std::vector<int32_t> picks;
      for (int e = 0; e < experts; ++e) picks.push_back(e);
      table.visit(l, picks, 1);
      table.end_visit();
    }
  }
}

TEST(CacheTable, LruHitsNothingUnderACycleAndTheDefaultDoes) {
  const auto shapes = equal_layers(8, 4, 4);
  const uint64_t budget = 28 * kBlock;  // a cycle is 32
  CacheTable lru(shapes, make_policy(CachePolicy::lru, shapes), make_byte_slots(shapes, budget));
  cycle_tokens(lru, 8, 4, 20);
  EXPECT_EQ(lru.counters().hits, 0u);
  CacheTable best(shapes, make_policy(CachePolicy::standard, shapes), make_byte_slots(shapes, budget));
  cycle_tokens(best, 8, 4, 20);
  EXPECT_GT(best.counters().hits, 20u * 32u / 2u);
  EXPECT_EQ(best.counters().hits + best.counters().misses, 20u * 32u);
}

TEST(CacheTable, TheBudgetHoldsWhenAPromptAsksForMore) {
  const auto shapes = equal_layers(3, 64, 4);
  for (const CachePolicy policy : kAll) {
    for (const bool extents : {false, true}) {
      const uint64_t budget = 20 * kBlock;
      CacheModel model(
          shapes, make_policy(policy, shapes),
          extents ? make_extent_slots(shapes, budget, whole_bank_bytes(shapes)) : make_byte_slots(shapes, budget));
      for (int l = 0; l < 3; ++l) {
        std::vector<int32_t> picks;
        for (int e = 0; e < 64; ++e) picks.push_back(e);
        const Visit& visit = model.table().visit(l, picks, 16);
        EXPECT_EQ(visit.placements.size(), 64u);
        EXPECT_LE(model.table().held_bytes(), budget);
        model.table().end_visit();
      }
      EXPECT_EQ(model.table().counters().misses, 3u * 64u);
    }
  }
}

TEST(CacheTable, CountsSmallAndLargeVisitsApart) {
  const auto shapes = equal_layers(1, 8, 2);
  CacheTable table(shapes, make_policy(CachePolicy::lru, shapes), make_byte_slots(shapes, 8 * kBlock));
  const std::vector<int32_t> few = {1, 2, 1, 3};
  table.visit(0, few, 2);
  EXPECT_EQ(table.counters(0).misses, 3u);
  EXPECT_EQ(table.counters(0).miss_bytes, 3 * kBlock);
  std::vector<int32_t> many;
  for (int row = 0; row < 33; ++row) many.insert(many.end(), {1, 4});
  table.visit(0, many, 33);
  EXPECT_EQ(table.counters(0).copies, 1u);
  EXPECT_EQ(table.counters(0).copy_bytes, kBlock);
  EXPECT_EQ(table.counters(0).large_misses, 1u);
  EXPECT_EQ(table.counters(0).misses, 3u);
  table.visit(0, few, 2);
  EXPECT_EQ(table.counters(0).hits, 3u);
  EXPECT_EQ(table.counters().rereads, 0u);
  EXPECT_EQ(table.token_demand_bytes(), 0u);  // no visit of one row yet
  table.visit(0, std::vector<int32_t>{5, 6}, 1);
  EXPECT_EQ(table.token_demand_bytes(), 2 * kBlock);
  EXPECT_EQ(table.layer_demand_bytes(), 2 * kBlock);
}

TEST(CacheTable, ForgetsAnEntryWhoseBytesDidNotCome) {
  const auto shapes = equal_layers(2, 8, 2);
  CacheTable table(shapes, make_policy(CachePolicy::lru, shapes),
                   make_extent_slots(shapes, 4 * kBlock, whole_bank_bytes(shapes)));
  const Visit& visit = table.visit(0, std::vector<int32_t>{3, 5}, 1);
  ASSERT_EQ(visit.placements[0].outcome, Outcome::admitted);
  table.forget(0, 3);
  EXPECT_FALSE(table.holds(0, 3));
  EXPECT_TRUE(table.holds(0, 5));
  table.end_visit();
  table.forget(0, 3);
  EXPECT_EQ(table.held_count(), 1);
  EXPECT_EQ(table.visit(0, std::vector<int32_t>{3}, 1).placements[0].outcome, Outcome::admitted);
  EXPECT_EQ(table.counters().rereads, 1u);
  EXPECT_EQ(table.counters().evictions, 0u);
}

TEST(CacheTable, EntriesOfAVisitDoNotGiveWayToEachOther) {
  const auto shapes = equal_layers(1, 8, 2);
  CacheTable table(shapes, make_policy(CachePolicy::lru, shapes), make_byte_slots(shapes, 2 * kBlock));
  table.visit(0, std::vector<int32_t>{0, 1}, 1);
  const Visit& visit = table.visit(0, std::vector<int32_t>{2, 0, 3}, 1);
  EXPECT_EQ(visit.placements[0].outcome, Outcome::hit);
  EXPECT_EQ(visit.placements[1].outcome, Outcome::admitted);  // over 1
  EXPECT_EQ(visit.placements[2].outcome, Outcome::bypassed);
  EXPECT_EQ(table.held(0), (std::vector<int32_t>{0, 2}));
}

TEST(CacheTable, AProfileFillsAndItsHitsCountUntilEviction) {
  const auto shapes = equal_layers(1, 8, 2);
  CacheTable table(shapes, make_policy(CachePolicy::lru, shapes), make_byte_slots(shapes, 3 * kBlock));
  const std::vector<std::pair<int, int>> profile = {{0, 7}, {0, 2}, {9, 9}, {0, 2}, {0, 3}, {0, 1}};
  const Visit& fill = table.prefill(profile);
  ASSERT_EQ(fill.fills.size(), 3u);
  EXPECT_EQ(fill.fills[0].layer, 0);
  EXPECT_EQ(fill.fills[0].expert, 7);
  EXPECT_EQ(table.prefilled(), 3u);
  EXPECT_EQ(table.counters().swaps, 0u);
  table.visit(0, std::vector<int32_t>{2}, 1);
  EXPECT_EQ(table.counters().hits_profile, 1u);
  table.visit(0, std::vector<int32_t>{5, 6}, 1);  // over the rest of the profile
  table.visit(0, std::vector<int32_t>{3}, 1);
  EXPECT_EQ(table.counters().evictions, 3u);
  table.visit(0, std::vector<int32_t>{3}, 1);
  EXPECT_EQ(table.counters().hits, 2u);
  EXPECT_EQ(table.counters().hits_profile, 1u);
}

TEST(CacheTable, ShrinksColdestFirstToNothingAndGrowsAgain) {
  const auto shapes = equal_layers(1, 16, 1);
  CacheModel model(shapes, make_policy(CachePolicy::lru, shapes),
                   make_extent_slots(shapes, 10 * kBlock, whole_bank_bytes(shapes)));
  for (int e = 0; e < 10; ++e) model.visit(0, {e}, 1);
  model.table().end_visit();
  model.apply(model.table().resize(4 * kBlock));
  EXPECT_EQ(model.table().held(0), (std::vector<int32_t>{6, 7, 8, 9}));
  EXPECT_EQ(model.table().slots().capacity_bytes(), 4 * kBlock);
  model.check();
  EXPECT_EQ(model.table().counters().evictions, 6u);
  model.apply(model.table().resize(kBlock - 1));
  EXPECT_EQ(model.table().held_count(), 0);
  EXPECT_EQ(model.table().slots().capacity_bytes(), 0u);
  EXPECT_EQ(model.table().visit(0, std::vector<int32_t>{3}, 1).placements[0].outcome, Outcome::bypassed);
  model.apply(model.table().resize(16 * kBlock));
  for (int round = 0; round < 2; ++round) {
    for (int e = 0; e < 16; ++e) model.visit(0, {e}, 1);
  }
  EXPECT_EQ(model.table().held_count(), 16);
  EXPECT_EQ(model.hits(), 16);
}

TEST(CacheTable, RefusesLayersAndExpertsThatDoNotExist) {
  const auto shapes = equal_layers(1, 4, 1);
  CacheTable table(shapes, make_policy(CachePolicy::lru, shapes), make_byte_slots(shapes, kBlock));
  EXPECT_THROW(table.visit(1, std::vector<int32_t>{0}, 1), std::exception);
  EXPECT_THROW(table.visit(0, std::vector<int32_t>{4}, 1), std::exception);
  EXPECT_THROW(table.visit(0, std::vector<int32_t>{-1}, 1), std::exception);
  EXPECT_FALSE(table.holds(0, 4));
  EXPECT_FALSE(table.holds(-1, 0));
}

TEST(CacheTable, APromptInPiecesReadsEachEntryOnce) {
  std::vector<LayerShape> shapes;
  for (int l = 0; l < 8; ++l) shapes.push_back({24, 4, 4 * kBlock, (l % 3 == 0 ? 6 : 4) * kBlock});
  std::vector<std::pair<int, int>> profile;
  for (int e = 0; e < 5; ++e) profile.emplace_back(e, e);
  for (const CachePolicy policy : kAll) {
    if (policy == CachePolicy::adaptive) continue;  // a miss takes no slot
    CacheModel model(shapes, make_policy(policy, shapes, profile),
                     make_extent_slots(shapes, 60 * 6 * kBlock, whole_bank_bytes(shapes)));
    model.apply(model.table().prefill(profile));
    Xoshiro256 random(7);
    const auto some = [&](int n) {
      std::vector<int32_t> picks;
      for (int i = 0; i < n; ++i) picks.push_back(static_cast<int32_t>(random.next_starstar() % 24));
      return picks;
    };
    for (int t = 0; t < 20; ++t) {
      for (int l = 0; l < 8; ++l) model.visit(l, some(4), 1);
    }
    for (int l = 0; l < 8; ++l) {
      std::set<int32_t> missing;
      const int64_t before = model.misses();
      for (int piece = 0; piece < 4; ++piece) {
        const std::vector<int32_t> picks = some(40);
        for (const int32_t e : picks) {
          if (!model.table().holds(l, e)) missing.insert(e);
        }
        model.visit(l, picks, 10);
        model.table().end_visit();
      }
      if (l == 0) continue;  // its first piece came before it could be known that there are more
      EXPECT_EQ(model.misses() - before, static_cast<int64_t>(missing.size())) << to_string(policy) << l;
    }
    if (policy != CachePolicy::pinned) continue;
    for (const auto& [layer, expert] : profile) EXPECT_TRUE(model.table().holds(layer, expert));
  }
}

TEST(CacheTable, AdaptiveGivesNoSlotToAMiss) {
  const std::vector<LayerShape> shapes = {{16, 2, kBlock, 4 * kBlock}, {16, 2, kBlock, 6 * kBlock}};
  CacheTable table(shapes, make_policy(CachePolicy::adaptive, shapes),
                   make_extent_slots(shapes, 50 * kBlock, whole_bank_bytes(shapes)));
  table.prefill(std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}});
  for (int t = 0; t < 7; ++t) {
    table.visit(0, std::vector<int32_t>{9, 10}, 1);
    const Visit& visit = table.visit(1, std::vector<int32_t>{9, 10}, 1);
    for (const Placement& p : visit.placements) EXPECT_EQ(p.outcome, Outcome::bypassed);
  }
  EXPECT_EQ(table.counters().evictions, 0u);
}

TEST(CacheTable, AllocatesNothingInSteadyState) {
  std::vector<LayerShape> shapes;
  for (int l = 0; l < 12; ++l) shapes.push_back({32, 4, 4 * kBlock, (l % 2 == 0 ? 4 : 6) * kBlock});
  for (const CachePolicy policy : kAll) {
    const uint64_t budget = 100 * 5 * kBlock;
    CacheTable table(shapes, make_policy(policy, shapes), make_extent_slots(shapes, budget, whole_bank_bytes(shapes)));
    Xoshiro256 random(1);
    const auto token = [&] {
      for (int l = 0; l < 12; ++l) {
        int32_t picks[4];
        for (int32_t& expert : picks)
          expert = static_cast<int32_t>(random.next_starstar() % 32 * (random.next_starstar() % 32) / 32);
        table.visit(l, picks, 1);
        table.end_visit();
      }
    };
    for (int i = 0; i < 100; ++i) token();
    const int64_t before = testing_support::allocations();
    for (int i = 0; i < 100; ++i) token();
    EXPECT_EQ(testing_support::allocations(), before) << to_string(policy);
    EXPECT_GT(table.counters().misses, 1000u);
  }
}

/// Random visits, resizes, forgetting and swaps over layers of several sizes, against the naive model.
TEST(CacheTable, RandomUseKeepsEveryPromise) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Xoshiro256 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<int>(random.next_starstar() % n); };
    const int layers = 1 + below(6);
    std::vector<LayerShape> shapes;
    for (int l = 0; l < layers; ++l) {
      const uint64_t blocks = std::vector<uint64_t>{2, 3, 9, 10}[static_cast<size_t>(below(4))];
      shapes.push_back({4 + below(12), 1 + below(3), blocks * kBlock - 100, blocks * kBlock});
    }
    const uint64_t bank = whole_bank_bytes(shapes);
    std::vector<std::pair<int, int>> profile;
    for (int i = 0; i < 5; ++i) profile.emplace_back(below(static_cast<uint64_t>(layers)), below(4));
    const CachePolicy policy = kAll[seed % std::size(kAll)];
    CacheModel model(shapes, make_policy(policy, shapes, profile),
                     make_extent_slots(shapes, random.next_starstar() % bank, bank));
    if (seed % 3 == 0) model.apply(model.table().prefill(profile));
    for (int step = 0; step < 250; ++step) {
      const int layer = step % layers;
      const LayerShape& shape = shapes[static_cast<size_t>(layer)];
      const int64_t rows = below(8) == 0 ? 1 + below(40) : 1;
      std::vector<int32_t> picks;
      for (int64_t i = 0; i < rows * shape.top_k; ++i) {
        const int skewed =
            std::min(below(static_cast<uint64_t>(shape.n_expert)), below(static_cast<uint64_t>(shape.n_expert)));
        picks.push_back(skewed);
      }
      model.visit(layer, picks, rows);
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << " step " << step;
      if (below(20) == 0) model.table().forget(layer, picks[0]);
      model.table().end_visit();
      if (below(30) == 0) {
        model.apply(model.table().resize(below(4) == 0 ? 0 : random.next_starstar() % (bank + bank / 4)));
        model.cut(model.table().slots().capacity_bytes());
        model.check();
      }
      if (below(30) == 0) model.apply(model.table().rebalance(4));
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << " step " << step;
    }
    const CacheCounters c = model.table().counters();
    EXPECT_EQ(c.hits + c.copies, static_cast<uint64_t>(model.hits()));
    EXPECT_EQ(c.misses + c.large_misses, static_cast<uint64_t>(model.misses()));
  }
}

}  // namespace
}  // namespace moetier
