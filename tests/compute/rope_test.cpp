#include <numbers>

#include "base/error.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

Floats table_of(Rig& rig, const RopeParams& params, const Ints& positions) {
  const int64_t n = static_cast<int64_t>(positions.size());
  const Tensor table = rig.floats({params.dims, n, 1, 1});
  rig->rope_table(params, rig.ints({n, 1, 1, 1}, positions), table);
  return rig.read(table);
}

RopeParams params_of(int64_t dims, double base) {
  RopeParams params;
  params.dims = dims;
  params.base = base;
  return params;
}

/// The angle as the facts sheet has it, with libm in a wider type.
long double angle(const RopeParams& p, const Floats& factors, int64_t i, int32_t position) {
  const long double dims = static_cast<long double>(p.dims);
  long double theta = position * std::pow(static_cast<long double>(p.base), -2.0L * i / dims);
  if (!factors.empty()) theta /= factors[static_cast<size_t>(i)];
  const long double inner = p.freq_scale * theta;
  if (p.ext_factor == 0.0) return inner;
  const auto bound = [&](double turns) {
    return dims * std::log(p.original_context / (2 * std::numbers::pi_v<long double> * turns)) /
           (2 * std::log(static_cast<long double>(p.base)));
  };
  const long double low = std::max(0.0L, std::floor(bound(p.beta_fast)));
  const long double high = std::min(dims - 1, std::ceil(bound(p.beta_slow)));
  const long double y = (static_cast<long double>(i) - low) / std::max(0.001L, high - low);
  const long double ramp = p.ext_factor * (1 - std::min(1.0L, std::max(0.0L, y)));
  return inner * (1 - ramp) + theta * ramp;
}

void expect_table(const RopeParams& base_params, const Floats& factors, const Ints& positions) {
  const Floats got = same_everywhere([&](Rig& rig) {
    RopeParams params = base_params;
    if (!factors.empty()) params.factors = rig.floats({params.dims / 2, 1, 1, 1}, factors);
    return table_of(rig, params, positions);
  });
  const int64_t half = base_params.dims / 2;
  for (size_t r = 0; r < positions.size(); ++r) {
    for (int64_t i = 0; i < half; ++i) {
      const long double a = angle(base_params, factors, i, positions[r]);
      const float* row = got.data() + static_cast<int64_t>(r) * base_params.dims;
      const double m = base_params.magnitude, bound = m * (1.2e-7 + 2e-16 * static_cast<double>(std::abs(a)) * 8);
      ASSERT_NEAR(row[i], m * static_cast<double>(std::cos(a)), bound) << "pair " << i << " at " << positions[r];
      ASSERT_NEAR(row[half + i], m * static_cast<double>(std::sin(a)), bound) << "pair " << i << " at " << positions[r];
    }
  }
}

TEST(Rope, TableIsCloseToLibm) {
  const Ints positions = {0, 1, 2, 63, 64, 1000, 4095, 131071, 1048576, 16777216, 2147483647};
  for (const int64_t dims : {2, 24, 48, 64, 80, 128}) {
    for (const double base : {10000.0, 500000.0, 1e6, 1e7}) expect_table(params_of(dims, base), {}, positions);
  }
}

TEST(Rope, LinearScalingFactorsAndMagnitude) {
  RopeParams params = params_of(64, 10000.0);
  params.freq_scale = 0.25;
  params.magnitude = 1.25;
  expect_table(params, {}, {0, 5, 900, 40000});
  Floats factors(32);
  for (size_t i = 0; i < 32; ++i) factors[i] = 1.0f + static_cast<float>(i) * 0.9f;
  expect_table(params, factors, {0, 5, 900, 40000});
}

TEST(Rope, Yarn) {
  RopeParams params = params_of(64, 150000.0);
  params.freq_scale = 1.0 / 32;
  params.original_context = 4096;
  params.magnitude = 1.3465735903;
  for (const double ext : {1.0, 0.5}) {
    params.ext_factor = ext;
    expect_table(params, {}, {0, 1, 77, 4095, 131071});
  }
  params.beta_fast = params.beta_slow = 8.0;  // a ramp of a single step
  expect_table(params, {}, {0, 1, 77, 4095, 131071});
}

TEST(Rope, ManyRowsOverThreads) {
  Ints positions(300);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i * 7);
  expect_table(params_of(128, 1e6), {}, positions);
}

Floats rotated(Rig& rig, int64_t d, int64_t heads, const Floats& x, int64_t dims, const Floats& table,
               RopePairs pairs) {
  const int64_t n = static_cast<int64_t>(table.size()) / dims;
  const Tensor t = rig.floats({d, heads, n, 1}, x);
  rig->rope(t, rig.floats({dims, n, 1, 1}, table), pairs);
  return rig.read(t);
}

TEST(Rope, RotatesByTheRule) {
  struct Shape {
    int64_t d, dims, heads, n;
  };
  for (const Shape s :
       {Shape{2, 2, 1, 1}, {24, 24, 3, 5}, {48, 32, 2, 4}, {80, 80, 5, 3}, {128, 128, 8, 40}, {64, 22, 1, 2}}) {
    const Floats x = noise(static_cast<size_t>(s.d * s.heads * s.n), 1),
                 table = noise(static_cast<size_t>(s.dims * s.n), 2);
    for (const RopePairs pairs : {RopePairs::neighbours, RopePairs::halves}) {
      Floats want = x;
      const int64_t half = s.dims / 2;
      for (int64_t r = 0; r < s.n * s.heads; ++r) {
        const float* cosines = table.data() + r / s.heads * s.dims;
        for (int64_t i = 0; i < half; ++i) {
          float& a = want[static_cast<size_t>(r * s.d + (pairs == RopePairs::halves ? i : 2 * i))];
          float& b = want[static_cast<size_t>(r * s.d + (pairs == RopePairs::halves ? i + half : 2 * i + 1))];
          const float old_a = a, old_b = b;
          a = old_a * cosines[i] - old_b * cosines[half + i];
          b = old_a * cosines[half + i] + old_b * cosines[i];
        }
      }
      const Floats got = same_everywhere([&](Rig& rig) { return rotated(rig, s.d, s.heads, x, s.dims, table, pairs); });
      expect_same_bits(got, want, "rope");
    }
  }
}

TEST(Rope, ByHand) {
  Rig rig;
  // A quarter turn of the first pair, none of the second, elements 4 and 5 left alone.
  const Floats table = {0, 1, 1, 0}, x = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(rotated(rig, 6, 1, x, 4, table, RopePairs::neighbours), (Floats{-2, 1, 3, 4, 5, 6}));
  EXPECT_EQ(rotated(rig, 6, 1, x, 4, table, RopePairs::halves), (Floats{-3, 2, 1, 4, 5, 6}));
  const Floats at_zero = table_of(rig, params_of(4, 10000.0), {0});
  EXPECT_EQ(at_zero, (Floats{1, 1, 0, 0}));
}

TEST(Rope, TurnsBack) {
  const Floats x = noise(48 * 3 * 5, 1);
  for (const RopePairs pairs : {RopePairs::neighbours, RopePairs::halves}) {
    const Floats got = same_everywhere([&](Rig& rig) {
      const Tensor t = rig.floats({48, 3, 5, 1}, x), table = rig.floats({32, 5, 1, 1});
      rig->rope_table(params_of(32, 10000.0), rig.ints({5, 1, 1, 1}, {0, 1, 9, 500, 70000}), table);
      rig->rope(t, table, pairs);
      rig->rope(t, table, pairs, true);
      return rig.read(t);
    });
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], x[i], 1e-6) << i;
  }
}

TEST(Rope, PositionsCountInSteps) {
  Rig rig;
  RopeParams params = params_of(8, 10000.0);
  const Floats want = table_of(rig, params, {0, 0, 4, 4, 128});
  params.step = 4;
  EXPECT_EQ(table_of(rig, params, {0, 3, 4, 7, 131}), want);
  params.step = 0;
  EXPECT_THROW(table_of(rig, params, {0}), Error);
}

TEST(Rope, WrongParametersAreErrors) {
  Rig rig;
  EXPECT_THROW(table_of(rig, params_of(5, 10000.0), {0}), Error);
  EXPECT_THROW(table_of(rig, params_of(4, 0.0), {0}), Error);
  EXPECT_THROW(table_of(rig, params_of(4, -3.0), {0}), Error);
  EXPECT_THROW(table_of(rig, params_of(4, std::numeric_limits<double>::quiet_NaN()), {0}), Error);
  RopeParams yarn = params_of(4, 10000.0);
  yarn.ext_factor = 1.0;
  EXPECT_THROW(table_of(rig, yarn, {0}), Error);
  RopeParams factors = params_of(4, 10000.0);
  factors.factors = rig.floats({3, 1, 1, 1});
  EXPECT_THROW(table_of(rig, factors, {0}), Error);
  EXPECT_THROW(rotated(rig, 4, 1, Floats(4), 6, Floats(6), RopePairs::halves), Error);
}

TEST(Rope, WildFactorsDoNotCrash) {
  Rig rig;
  RopeParams params = params_of(8, 10000.0);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  params.factors = rig.floats({4, 1, 1, 1}, {0.0f, inf, nan, 1e-38f});
  const Floats got = table_of(rig, params, {3});
  EXPECT_EQ(got[1], 1.0f);  // angle 0
  EXPECT_TRUE(std::isnan(got[2]));
}

}  // namespace
}  // namespace moetier
