#include "experts/simulator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "experts/belady.h"
#include "synth_routing.h"

namespace moetier {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string shared_trace(const std::string& name) {
  const char* const env = std::getenv("MOETIER_SHARED");
  const std::string root = env != nullptr ? env : MOETIER_SOURCE_DIR "/../shared";
  return root + "/traces/" + name + ".route.csv";
}

#define NEED_TRACE(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the recorded trace " << path << " is not here"

/// A trace by hand: the text of a CSV.
RoutingTrace parse(const std::string& text) {
  return parse_trace(std::as_bytes(std::span(text)), "test.csv");
}

std::string csv(const std::string& rows) {
  return "# route_trace v1\n# model=m arch=a n_layer=2 n_expert=4 n_expert_used=1\n"
         "# layer=0 expert_bytes=100 dense_bytes=0\n# layer=1 expert_bytes=200 dense_bytes=0\n"
         "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n" +
         rows;
}

/// Prompt tokens pick 0 and 1 in both layers; then tokens pick 1, 2, 1.
const char* const kRows =
    "0,0,0,0,0,0,1.0,0,100\n0,0,1,0,0,1,1.0,0,100\n0,0,0,1,0,0,1.0,0,200\n0,0,1,1,0,1,1.0,0,200\n"
    "0,1,2,0,0,1,1.0,1,0\n0,1,2,1,0,1,1.0,1,0\n0,1,3,0,0,2,1.0,0,100\n0,1,3,1,0,2,1.0,0,200\n"
    "0,1,4,0,0,1,1.0,1,0\n0,1,4,1,0,1,1.0,1,0\n";

TEST(Simulator, LaysAPromptOutLayerByLayer) {
  const TraceRun run = run_of(parse(csv(kRows)), "t");
  ASSERT_EQ(run.shapes.size(), 2u);
  EXPECT_EQ(run.cycle_bytes(), 300u);
  EXPECT_EQ(run.bank_bytes(), 1200u);
  EXPECT_EQ(run.prompt_tokens, 2);
  EXPECT_EQ(run.decode_tokens, 3);
  ASSERT_EQ(run.steps.size(), 8u);
  EXPECT_EQ(run.steps[0].rows, 2);
  EXPECT_TRUE(run.steps[1].prompt);
  EXPECT_EQ(run.steps[1].layer, 1);
  EXPECT_EQ(run.steps[2].rows, 1);
  EXPECT_FALSE(run.steps[2].prompt);
  EXPECT_EQ(run_of(parse(csv(kRows)), "t", {.ubatch = 1}).steps.size(), 10u);
  EXPECT_EQ(run_of(parse(csv(kRows)), "t", {.prompt = false}).steps.size(), 6u);
  EXPECT_EQ(run_of(parse(csv(kRows)), "t", {.layers = 1}).shapes.size(), 1u);
  EXPECT_THROW(run_of(parse(csv(kRows)), "t", {.layers = 3}), std::exception);
}

TEST(Simulator, CountsByHand) {
  const TraceRun run = run_of(parse(csv(kRows)), "t");
  const auto all = simulate(run, make_policy(CachePolicy::lru, run.shapes), make_byte_slots(run.shapes, 1200));
  EXPECT_EQ(all.prompt_misses, 4u);
  EXPECT_EQ(all.prompt_miss_bytes, 600u);
  EXPECT_EQ(all.hits, 4u);
  EXPECT_EQ(all.misses, 2u);
  EXPECT_EQ(all.miss_bytes, 300u);
  EXPECT_EQ(compulsory_misses(run), 2u);
  const auto none = simulate(run, make_policy(CachePolicy::lru, run.shapes), make_byte_slots(run.shapes, 0));
  EXPECT_EQ(none.hits, 0u);
  EXPECT_EQ(none.misses, 6u);
  // Room for one entry: each layer takes it from the other under LRU, and one who knows keeps expert 1.
  const auto lru = simulate(run, make_policy(CachePolicy::lru, run.shapes), make_byte_slots(run.shapes, 200));
  const auto best = simulate(run, make_belady_policy(run), make_byte_slots(run.shapes, 200));
  EXPECT_EQ(lru.hits, 0u);
  EXPECT_GT(best.hits, 0u);
}

TEST(Simulator, PlaysATraceOnAModelOfOtherDepth) {
  const std::vector<LayerShape> shapes(5, {4, 2, 4096, 4096});
  const TraceRun run = run_on(parse(csv(kRows)), "t", shapes);
  ASSERT_EQ(run.shapes.size(), 5u);
  EXPECT_EQ(run.shapes[0].top_k, 1);
  EXPECT_EQ(run.steps.size(), 5u * 4u);
  EXPECT_THROW(run_on(parse(csv(kRows)), "t", std::vector<LayerShape>(1, {2, 1, 4096, 4096})), std::exception);
}

TEST(Simulator, NothingBeatsTheFutureKnown) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const TraceRun run = synth_run({.layers = 8, .skew = 0.5 * static_cast<double>(seed)}, seed);
    for (const double cycles : {0.8, 1.5, 4.0}) {
      const auto budget = static_cast<uint64_t>(cycles * static_cast<double>(run.cycle_bytes()));
      const auto best = simulate(run, make_belady_policy(run), make_byte_slots(run.shapes, budget));
      for (const CachePolicy policy : kCachePolicies) {
        const auto its = simulate(run, make_policy(policy, run.shapes), make_byte_slots(run.shapes, budget));
        EXPECT_LE(its.hits, best.hits);
        EXPECT_EQ(its.hits + its.misses, best.hits + best.misses);
        EXPECT_GE(its.misses, its.swap_bytes > 0 ? 0 : compulsory_misses(run));
      }
    }
  }
}

/// The recorded cache was an LRU of 4000 MiB: every pick's residency must come out again.
void replay_recorded(const std::string& name, double percent) {
  const std::string path = shared_trace(name);
  NEED_TRACE(path);
  const RoutingTrace trace = read_trace(path);
  const TraceRun run = run_of(trace, path);
  const auto result =
      simulate(run, make_policy(CachePolicy::lru, run.shapes), make_byte_slots(run.shapes, 4000 * kMiB));
  EXPECT_NEAR(result.hit_percent(), percent, 0.05);
  uint64_t hits = 0, wrong = 0;
  CacheTable table(run.shapes, make_policy(CachePolicy::lru, run.shapes), make_byte_slots(run.shapes, 4000 * kMiB));
  auto routing = trace.routings.begin();
  for (const TraceRun::Step& step : run.steps) {
    const Visit& visit = table.visit(step.layer, run.picks_of(step), step.rows);
    if (step.prompt) continue;
    routing = std::find_if(routing, trace.routings.end(), [](const Routing& r) { return !r.prompt; });
    for (uint32_t i = routing->first; i < routing->first + routing->count; ++i) {
      const auto at = std::ranges::lower_bound(visit.placements, trace.ids[i], {}, &Placement::expert);
      const bool hit = at->outcome == Outcome::hit;
      hits += hit ? 1 : 0;
      if (trace.residency[i] != (hit ? 1 : 0)) ++wrong;
    }
    ++routing;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(hits, result.hits);
}

TEST(Simulator, LruGivesTheRecordedHitsOfQwen) {
  replay_recorded("qwen", 80.3);
}
TEST(Simulator, LruGivesTheRecordedHitsOfGemma) {
  replay_recorded("gemma", 81.9);
}

TEST(Simulator, ExtentsCostLittle) {
  const std::string path = shared_trace("qwen");
  NEED_TRACE(path);
  const TraceRun run = run_of(read_trace(path), path);
  std::vector<LayerShape> shapes = run.shapes;
  for (LayerShape& shape : shapes) shape.slot_bytes = (shape.entry_bytes + 4095) / 4096 * 4096;
  for (const uint64_t mib : {1000, 2000, 4000}) {
    for (const CachePolicy policy : {CachePolicy::standard, CachePolicy::lru}) {
      const auto bytes = simulate(run, make_policy(policy, shapes), make_byte_slots(shapes, mib * kMiB));
      const auto extents =
          simulate(run, make_policy(policy, shapes), make_extent_slots(shapes, mib * kMiB, whole_bank_bytes(shapes)));
      EXPECT_GE(extents.hit_percent(), bytes.hit_percent() - 1.0) << mib;
      EXPECT_LE(extents.capacity_bytes, mib * kMiB);
    }
  }
}

}  // namespace
}  // namespace moetier
