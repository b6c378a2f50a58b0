#include "experts/policy_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "experts/simulator.h"
#include "synth_routing.h"

namespace moetier {
namespace {

TEST(PolicySpec, ANameAloneIsAsInARun) {
  const TraceRun run = synth_run({}, 5);
  for (const CachePolicy kind : kCachePolicies) {
    const PolicySpec spec = parse_policy_spec(to_string(kind));
    EXPECT_EQ(spec.kind, kind);
    const uint64_t bytes = 2 * run.cycle_bytes();
    const auto as_text = simulate(run, make_policy(spec, run.shapes), make_byte_slots(run.shapes, bytes));
    const auto as_kind = simulate(run, make_policy(kind, run.shapes), make_byte_slots(run.shapes, bytes));
    EXPECT_EQ(as_text.hits, as_kind.hits) << to_string(kind);
    EXPECT_EQ(as_text.evictions, as_kind.evictions) << to_string(kind);
  }
}

TEST(PolicySpec, ParametersReachThePolicy) {
  const PolicySpec spec = parse_policy_spec("adaptive:half-life=20:swap-every=4:most-swaps=2:factor=1.1:margin=0");
  EXPECT_EQ(spec.adaptive.half_life, 20);
  EXPECT_EQ(spec.adaptive.swap_every, 4);
  EXPECT_EQ(spec.adaptive.most_swaps, 2);
  EXPECT_EQ(spec.adaptive.factor, 1.1);
  EXPECT_EQ(spec.adaptive.margin, 0);
  EXPECT_EQ(spec.adaptive.fill_every, AdaptiveOptions().fill_every);
  EXPECT_EQ(parse_policy_spec("heat:half-life=3").heat_half_life, 3);
  EXPECT_EQ(parse_policy_spec("cycle:weight=0.25").cycle_weight, 0.25);
  EXPECT_EQ(parse_policy_spec("default:memory=256").reuse.memory, 256);
  EXPECT_TRUE(parse_policy_spec("default:memory=256").reuse.followers);
  EXPECT_FALSE(parse_policy_spec("reuse:memory=256").reuse.followers);
  const TraceRun run = synth_run({.skew = 1.2, .recency = 0.1}, 6);
  const auto swaps = [&](std::string_view text) {
    return simulate(run, make_policy(parse_policy_spec(text), run.shapes),
                    make_byte_slots(run.shapes, 2 * run.cycle_bytes()))
        .swap_bytes;
  };
  EXPECT_GT(swaps("adaptive:half-life=10:swap-every=1:factor=1:margin=0"), swaps("adaptive"));
}

TEST(PolicySpec, SaysWhatIsWrong) {
  const auto complaint = [](std::string_view text) {
    try {
      parse_policy_spec(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  EXPECT_THAT(complaint("best"), HasSubstr("adaptive"));
  EXPECT_THAT(complaint("adaptive:half-lives=3"), HasSubstr("swap-every"));
  EXPECT_THAT(complaint("adaptive:half-life"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(complaint("adaptive:half-life=0"), HasSubstr("0.1"));
  EXPECT_THAT(complaint("adaptive:half-life=nan"), HasSubstr("nan"));
  EXPECT_THAT(complaint("adaptive:half-life=3x"), HasSubstr("3x"));
  EXPECT_THAT(complaint("adaptive:swap-every=1.5"), HasSubstr("whole number"));
  EXPECT_THAT(complaint("adaptive:"), HasSubstr("''"));
  EXPECT_THAT(complaint("lru:half-life=3"), HasSubstr("none"));
}

}  // namespace
}  // namespace moetier
