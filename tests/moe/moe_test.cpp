// The MoE operation against a float64 evaluation, and that neither arrival order nor batching changes a bit.
#include "moe/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "moe_fixture.h"
#include "support/allocations.h"

namespace moetier {
namespace {

using testing::Bench;
using testing::dense_row;
using testing::DenseRow;
using testing::LayerShape;
using testing::random_floats;
using testing::RandomLayer;
using testing::ShuffledStore;

/// What the operation chose.
struct Picks {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<uint8_t> dropped;
  int calls = 0;
  static void see(void* user, const RoutedPicks& routed) {
    auto& picks = *static_cast<Picks*>(user);
    picks.ids.assign(routed.ids.begin(), routed.ids.end());
    picks.weights.assign(routed.weights.begin(), routed.weights.end());
    picks.dropped.assign(routed.dropped.begin(), routed.dropped.end());
    ++picks.calls;
  }
};

/// Bit patterns, so that signs of zero count.
std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> result(values.size());
  std::memcpy(result.data(), values.data(), values.size() * sizeof(float));
  return result;
}

struct Case {
  const char* name;
  LayerShape shape;
  double tolerance;  ///< of the largest |output|
};

class MoeAgainstDense : public ::testing::TestWithParam<Case> {};

TEST_P(MoeAgainstDense, EveryRowAgreesWithFloat64) {
  const Case& c = GetParam();
  const RandomLayer layer(c.shape, 17);
  std::mt19937 rng(5);
  ShuffledStore store({&layer}, 3);
  Bench bench(layer, store, 33);
  Picks picks;
  bench.moe().observe(Picks::see, &picks);
  const auto columns = static_cast<size_t>(c.shape.columns), top_k = static_cast<size_t>(c.shape.top_k);
  for (const size_t n : {1u, 5u, 33u}) {
    const std::vector<float> input = random_floats(n * columns, 1.0f, rng);
    const std::vector<float> out = bench.run(input);
    double largest = 0, worst = 0;
    for (size_t r = 0; r < n; ++r) {
      const DenseRow want = dense_row(layer, std::span(input).subspan(r * columns, columns), true);
      for (size_t k = 0; k < top_k; ++k) {
        EXPECT_EQ(picks.ids[r * top_k + k], want.picks[k]);
        EXPECT_NEAR(picks.weights[r * top_k + k], want.weights[k], 1e-5);
      }
      for (size_t i = 0; i < columns; ++i) {
        largest = std::max(largest, std::abs(want.out[i]));
        worst = std::max(worst, std::abs(want.out[i] - static_cast<double>(out[r * columns + i])));
      }
    }
    EXPECT_LE(worst, c.tolerance * largest) << n << " rows";
  }
}

// 8-bit activations leave about 1 % at the largest deviation; float weights only rounding.
INSTANTIATE_TEST_SUITE_P(Types, MoeAgainstDense,
                         ::testing::Values(Case{"f32", {}, 1e-5},
                                           Case{"f32_odd", {24, 17, 5, 5, TensorType::f32, false}, 1e-5},
                                           Case{"f16", {64, 96, 7, 3, TensorType::f16, false}, 1e-5},
                                           Case{"bf16_fused", {64, 96, 7, 1, TensorType::bf16, true}, 1e-5},
                                           Case{"q8_0", {64, 96, 7, 3, TensorType::q8_0, false}, 2e-2},
                                           Case{"q8_0_fused", {64, 96, 7, 3, TensorType::q8_0, true}, 2e-2},
                                           Case{"mxfp4", {64, 96, 9, 4, TensorType::mxfp4, false}, 2e-2},
                                           Case{"q4_k", {256, 512, 6, 2, TensorType::q4_k, false}, 2e-2}),
                         [](const auto& test) { return test.param.name; });

TEST(MoeOperation, ArrivalOrderChangesNoBit) {
  for (const TensorType type : {TensorType::f32, TensorType::q8_0}) {
    const RandomLayer layer({64, 96, 12, 4, type, false}, 1);
    std::mt19937 rng(2);
    const std::vector<float> input = random_floats(64 * 19, 1.0f, rng);
    ShuffledStore ordered({&layer}, 0, false);
    const std::vector<float> want = Bench(layer, ordered, 19).run(input);
    for (unsigned seed = 1; seed <= 8; ++seed) {
      ShuffledStore shuffled({&layer}, seed);
      EXPECT_EQ(bits(Bench(layer, shuffled, 19, seed % 2 == 0 ? 3 : 1).run(input)), bits(want)) << "seed " << seed;
    }
  }
}

/// 33 rows and more walk the experts in order, fewer take them as they come.
TEST(MoeOperation, BatchingChangesNoBit) {
  const RandomLayer layer({64, 96, 12, 4, TensorType::q8_0, false}, 1);
  std::mt19937 rng(2);
  const std::vector<float> input = random_floats(64 * 50, 1.0f, rng);
  ShuffledStore store({&layer}, 4);
  Bench bench(layer, store, 50, 2);
  const std::vector<float> want = bench.run(input);
  for (const size_t step : {1u, 4u, 7u, 32u, 33u}) {
    std::vector<float> got;
    for (size_t at = 0; at < input.size(); at += step * 64) {
      const size_t n = std::min(step * 64, input.size() - at);
      const std::vector<float> part = bench.run(std::span(input).subspan(at, n));
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(bits(got), bits(want)) << "in steps of " << step;
  }
}

TEST(MoeOperation, FusedAndSeparateExpertsGiveTheSameBits) {
  LayerShape shape{64, 96, 6, 2, TensorType::q8_0, false};
  const RandomLayer separate(shape, 8);
  shape.fused = true;
  const RandomLayer fused(shape, 8);
  std::mt19937 rng(2);
  const std::vector<float> input = random_floats(64 * 9, 1.0f, rng);
  ShuffledStore a({&separate}, 1), b({&fused}, 2);
  EXPECT_EQ(bits(Bench(separate, a, 9).run(input)), bits(Bench(fused, b, 9).run(input)));
}

TEST(MoeOperation, SelectionBiasChoosesButDoesNotWeigh) {
  const RandomLayer layer({}, 3);
  std::mt19937 rng(2);
  const std::vector<float> input = random_floats(64, 1.0f, rng);
  ShuffledStore store({&layer}, 1);
  Bench bench(layer, store, 1);
  Picks picks;
  bench.moe().observe(Picks::see, &picks);
  bench.description.route.normalize = false;
  bench.run(input);
  const std::vector<float> plain = picks.weights;
  // 10 exceeds any probability: the last three experts must be chosen, at their own probabilities.
  std::vector<float> bias(7, 0.0f);
  for (size_t e = 4; e < 7; ++e) bias[e] = 10.0f;
  const auto compute = make_cpu_compute({.threads = 1});
  const auto buffer = compute->wrap(bias.data(), bias.size() * sizeof(float));
  bench.description.selection_bias = Tensor::packed(buffer.get(), 0, TensorType::f32, {7, 1, 1, 1});
  bench.run(input);
  EXPECT_THAT(picks.ids, ::testing::UnorderedElementsAre(4, 5, 6));
  for (const float w : picks.weights) EXPECT_LT(w, 1.0f);
  EXPECT_NE(picks.weights, plain);
}

TEST(MoeOperation, MetersCountPicksAndReset) {
  const RandomLayer layer({}, 3);
  std::mt19937 rng(2);
  const std::vector<float> input = random_floats(64 * 5, 1.0f, rng);
  ShuffledStore store({&layer}, 1);
  Bench bench(layer, store, 5);
  bench.run(input);
  bench.run(std::span(input).first(64));
  EXPECT_EQ(bench.moe().meters().picks, 6u * 3u);
  EXPECT_GT(bench.moe().meters().compute_seconds, 0.0);
  EXPECT_GT(bench.moe().meters().wait_seconds, 0.0);
  EXPECT_EQ(store.fetches, 2);
  EXPECT_EQ(store.released, 2);
  bench.moe().reset_meters();
  EXPECT_EQ(bench.moe().meters().picks, 0u);
}

TEST(MoeOperation, AllocatesNothingInSteadyState) {
  const RandomLayer layer({}, 3);
  std::mt19937 rng(2);
  const std::vector<float> input = random_floats(64 * 5, 1.0f, rng);
  ShuffledStore store({&layer}, 1);
  Bench bench(layer, store, 5);
  bench.run(input);
  const int64_t before = testing_support::allocations();
  for (int i = 0; i < 5; ++i) bench.moe().run(bench.description, bench.x(5), bench.out(5));
  EXPECT_EQ(testing_support::allocations(), before);
}

TEST(MoeOperation, RefusesWhatItWasNotSizedFor) {
  const RandomLayer layer({}, 3);
  ShuffledStore store({&layer}, 1);
  Bench bench(layer, store, 2);
  const std::vector<float> input(64 * 2, 0.5f);
  const MoeLayer fine = bench.description;
  const auto refused = [&](const char* what) {
    EXPECT_THROW(bench.run(input), Error) << what;
    bench.description = fine;
  };
  bench.description.route.top_k = 4;
  refused("more picks");
  bench.description.route.top_k = 0;
  refused("no picks");
  bench.description.layer = 1;
  refused("a layer without experts");
  bench.description.ffn.width = 95;
  refused("another width");
  bench.description.ffn.down_type = TensorType::f16;
  refused("another type");
  bench.description.ffn.fused = true;
  refused("fused where the store has separate slices");
  EXPECT_THROW(bench.moe().run(fine, bench.x(3), bench.out(3)), Error);
  EXPECT_THROW(bench.moe().run(fine, bench.x(2), bench.out(1)), Error);
  EXPECT_EQ(bench.run(input).size(), input.size());
}

TEST(MoeOperation, CannotBeSizedForNothing) {
  const RandomLayer layer({}, 3);
  ShuffledStore store({&layer}, 1);
  const auto compute = make_cpu_compute({.threads = 1});
  EXPECT_THROW(MoeOperation(*compute, store, 0, 4, 2), Error);
  EXPECT_THROW(MoeOperation(*compute, store, 1, 4, 5), Error);
  EXPECT_THROW(MoeOperation(*compute, store, 1, 4, 0), Error);
  EXPECT_THROW(MoeOperation(*compute, store, int64_t{1} << 40, 4, 2), Error);
}

TEST(MoeOperation, OtherPicksCanTakeTheRoutersPlace) {
  const RandomLayer layer({64, 96, 12, 4, TensorType::q8_0, false}, 1);
  std::mt19937 rng(2);
  ShuffledStore store({&layer}, 1);
  Bench bench(layer, store, 40);
  const std::vector<float> input = random_floats(64 * 40, 1.0f, rng);
  const std::vector<float> own = bench.run(input);
  Picks routed;
  bench.moe().observe(Picks::see, &routed);
  bench.run(input);
  const Picks recorded = routed;
  // The same picks put in by hand are the same answer; others are seen by the observer and give another.
  bench.moe().replace_picks(
      [](void* user, int, std::span<int32_t> ids, std::span<float> weights, int64_t) {
        const auto& from = *static_cast<const Picks*>(user);
        std::copy(from.ids.begin(), from.ids.end(), ids.begin());
        std::copy(from.weights.begin(), from.weights.end(), weights.begin());
      },
      const_cast<Picks*>(&recorded));
  EXPECT_EQ(bits(bench.run(input)), bits(own));
  bench.moe().replace_picks(
      [](void*, int, std::span<int32_t> ids, std::span<float>, int64_t) {
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 4);
      },
      nullptr);
  EXPECT_NE(bits(bench.run(input)), bits(own));
  EXPECT_EQ(routed.ids[1], 1);
  bench.moe().replace_picks([](void*, int, std::span<int32_t> ids, std::span<float>, int64_t) { ids[0] = 12; },
                            nullptr);
  EXPECT_THROW(bench.run(input), Error);
}

/// Holds none of the experts.
class ColdStore final : public ExpertStore {
 public:
  explicit ColdStore(ShuffledStore& inner) : inner_(inner) {}
  const EntryMap& map() const override { return inner_.map(); }
  Lease fetch(int layer, std::span<const int32_t> picks, int64_t rows, FetchOrder order) override {
    last_picks.assign(picks.begin(), picks.end());
    return inner_.fetch(layer, picks, rows, order);
  }
  StoreStatus status() const override { return {}; }
  bool holds(int, int) const override { return false; }
  std::vector<int32_t> held(int) const override { return {}; }
  const StoreMeters& meters() const override { return inner_.meters(); }
  StoreCounters counters(int) const override { return {}; }
  StoreCounters counters() const override { return {}; }
  uint64_t resident_bytes() const override { return 0; }
  std::vector<int32_t> last_picks;

 private:
  ShuffledStore& inner_;
};

TEST(MoeOperation, DropsLightPicksThatAreColdInSingleRowsOnly) {
  const RandomLayer layer({64, 96, 12, 4, TensorType::q8_0, false}, 1);
  std::mt19937 rng(2);
  const std::vector<float> one = random_floats(64, 1.0f, rng), two = random_floats(128, 1.0f, rng);
  ShuffledStore warm({&layer}, 1);
  ColdStore cold(warm);
  Bench plain(layer, warm, 2), dropping(layer, cold, 2);
  Picks picks;
  dropping.moe().observe(Picks::see, &picks);
  std::vector<int32_t> used;
  dropping.moe().observe_use(
      [](void* user, int, std::span<const int32_t> ids) {
        static_cast<std::vector<int32_t>*>(user)->assign(ids.begin(), ids.end());
      },
      &used);
  dropping.moe().drop_cold(1e-6f);  // no pick is that light
  EXPECT_EQ(bits(dropping.run(one)), bits(plain.run(one)));
  EXPECT_EQ(dropping.moe().meters().dropped, 0u);
  EXPECT_EQ(used, picks.ids);
  dropping.moe().drop_cold(1.0f);
  EXPECT_NE(bits(dropping.run(one)), bits(plain.run(one)));
  float sum = 0;
  for (const float w : picks.weights) sum += w;
  const auto light = std::count_if(picks.weights.begin(), picks.weights.end(), [&](float w) { return w < sum / 4; });
  EXPECT_GT(light, 0);
  EXPECT_EQ(dropping.moe().meters().dropped, static_cast<uint64_t>(light));
  ASSERT_EQ(picks.dropped.size(), picks.ids.size());
  for (size_t i = 0; i < picks.ids.size(); ++i) EXPECT_EQ(picks.dropped[i] != 0, picks.weights[i] < sum / 4);
  const std::set<int32_t> asked(cold.last_picks.begin(), cold.last_picks.end());
  EXPECT_EQ(asked.size(), 4u - static_cast<size_t>(light));
  EXPECT_TRUE(asked.contains(picks.ids[0]));  // the heaviest
  EXPECT_EQ(used.size(), asked.size()) << "what was dropped was not used";
  EXPECT_EQ(std::set<int32_t>(used.begin(), used.end()), asked);
  EXPECT_EQ(bits(dropping.run(two)), bits(plain.run(two)));
  // What the store holds is not dropped.
  Bench held(layer, warm, 2);
  held.moe().drop_cold(1.0f);
  EXPECT_EQ(bits(held.run(one)), bits(plain.run(one)));
  EXPECT_THROW(held.moe().drop_cold(1.5f), Error);
}

}  // namespace
}  // namespace moetier
