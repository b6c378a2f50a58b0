// Sizing is arithmetic: what is there, less what else will be needed.
#include "experts/sizing.h"

#include <gtest/gtest.h>

namespace moetier {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

SizingInput machine(uint64_t available_mib) {
  SizingInput in;
  in.available = available_mib * kMiB;
  in.bank = 16000 * kMiB;
  in.kv = 200 * kMiB;
  in.buffers = 50 * kMiB;
  in.dense = 600 * kMiB;
  return in;
}

TEST(Sizing, AutoIsResidentOnlyWithAir) {
  SizingInput in = machine(16000 + 850 + 1536);
  EXPECT_EQ(plan_residency({}, in).mode, ExpertMode::resident);
  in.available = *in.available - 1;
  EXPECT_EQ(plan_residency({}, in).mode, ExpertMode::stream);
  in = machine(40000);
  ResidencyOptions asked;
  asked.cache_bytes = 2000 * kMiB;
  EXPECT_EQ(plan_residency(asked, in).mode, ExpertMode::stream);
  in.available.reset();
  EXPECT_EQ(plan_residency({}, in).mode, ExpertMode::stream);
}

TEST(Sizing, TakesWhatIsAvailableLessWhatIsReservedAndTheFloor) {
  const SizingPlan plan = plan_residency({}, machine(8000));
  EXPECT_EQ(plan.budget, (8000 - 850 - 1536) * kMiB);
  EXPECT_TRUE(plan.from_memory);
  EXPECT_EQ(plan.reserved, 850 * kMiB);
  ResidencyOptions o;
  o.floor_bytes = 100 * kMiB;
  EXPECT_EQ(plan_residency(o, machine(8000)).budget, (8000 - 850 - 100) * kMiB);
}

TEST(Sizing, CapsAtTheCeilingAndAtTheBank) {
  ResidencyOptions o;
  o.mode = ExpertMode::stream;
  EXPECT_EQ(plan_residency(o, machine(100000)).budget, 16000 * kMiB);
  o.ceil_bytes = 3000 * kMiB;
  EXPECT_EQ(plan_residency(o, machine(100000)).budget, 3000 * kMiB);
  SizingInput small = machine(1000);
  small.bank = 40 * kMiB;
  o.ceil_bytes = 0;
  EXPECT_EQ(plan_residency(o, small).budget, 40 * kMiB);
}

TEST(Sizing, TheLeastCacheNeverLiftsTheBudgetAboveMemory) {
  const SizingPlan tight = plan_residency({}, machine(850 + 1600));  // 1600 usable, and a floor of 1536
  EXPECT_EQ(tight.budget, 1400 * kMiB);
  const SizingPlan enough = plan_residency({}, machine(850 + 2500));
  EXPECT_EQ(enough.budget, 1500 * kMiB);
  EXPECT_EQ(plan_residency({}, machine(500)).budget, 0u);  // less than what is reserved
  SizingInput unknown = machine(0);
  unknown.available.reset();
  const SizingPlan blind = plan_residency({}, unknown);
  EXPECT_EQ(blind.budget, kLeastCache);
  EXPECT_NE(blind.why.find("not known"), std::string::npos);
}

TEST(Sizing, ASmallGroupScalesTheFloorDown) {
  EXPECT_EQ(scaled_floor(1536 * kMiB, 0), 1536 * kMiB);
  EXPECT_EQ(scaled_floor(1536 * kMiB, 1600 * kMiB), 100 * kMiB);
  EXPECT_EQ(scaled_floor(1536 * kMiB, 64000 * kMiB), 1536 * kMiB);
}

TEST(Sizing, DenseWeightsInThePageCacheAreNotSubtracted) {
  SizingInput in = machine(8000);
  in.dense_mapped = in.dense;
  in.dense = 0;
  EXPECT_EQ(plan_residency({}, in).budget, (8000 - 250 - 1536) * kMiB);
}

TEST(Sizing, SaysWhenTheCacheIsBelowTheCycle) {
  EXPECT_EQ(below_cycle(900, 800, 8, "lru"), "");
  EXPECT_EQ(below_cycle(800, 800, 8, "lru"), "");
  EXPECT_EQ(below_cycle(0, 800, 8, "lru"), "");
  const std::string lru = below_cycle(700 * kMiB, 800 * kMiB, 8, "lru");
  EXPECT_NE(lru.find("700 MiB"), std::string::npos) << lru;
  EXPECT_NE(lru.find("800 MiB"), std::string::npos) << lru;
  EXPECT_NE(lru.find("top-k 8"), std::string::npos) << lru;
  EXPECT_NE(lru.find("expect a hit rate near zero"), std::string::npos) << lru;
  EXPECT_EQ(below_cycle(700 * kMiB, 800 * kMiB, 8, "default").find("near zero"), std::string::npos);
}

}  // namespace
}  // namespace moetier
