// The fixed sequences of math.h and math64.h against libm in a wider type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>

#include "compute/cpu/math.h"
#include "compute/cpu/math64.h"

namespace moetier {
namespace {

double relative(double got, double want) {
  return std::abs(got - want) / std::abs(want);
}

TEST(Math, Flush) {
  EXPECT_EQ(num::flush(0x1p-100f), 0x1p-100f);
  EXPECT_EQ(num::flush(-0x1p-100f), -0x1p-100f);
  const float below = std::nextafter(0x1p-100f, 0.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(num::flush(below)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(num::flush(-below)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(num::flush(-0.0f)), 0u);
  EXPECT_EQ(num::flush(-std::numeric_limits<float>::infinity()), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(num::flush(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, MaxAndMinGiveTheSecondForNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(num::max(nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(num::max(1.0f, nan)));
  EXPECT_EQ(num::min(nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(num::min(1.0f, nan)));
}

TEST(Math, ExpIsCloseEverywhere) {
  double worst = 0;
  for (double x = -87.0; x <= 87.0; x += 0.00037) {
    const float f = static_cast<float>(x);
    worst = std::max(worst, relative(num::exp(f), std::exp(static_cast<double>(f))));
  }
  EXPECT_LT(worst, 1.3e-7);
}

TEST(Math, ExpAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(num::exp(0.0f), 1.0f);
  EXPECT_EQ(num::exp(-0.0f), 1.0f);
  EXPECT_EQ(num::exp(std::numeric_limits<float>::denorm_min()), 1.0f);
  EXPECT_EQ(num::exp(-1000.0f), num::exp(-87.0f));
  EXPECT_EQ(num::exp(-inf), num::exp(-87.0f));
  EXPECT_EQ(num::exp(inf), num::exp(87.0f));
  EXPECT_EQ(num::exp(std::numeric_limits<float>::quiet_NaN()), num::exp(-87.0f));
  EXPECT_TRUE(std::isnormal(num::exp(-87.0f)));
  EXPECT_TRUE(std::isnormal(num::exp(87.0f)));
}

TEST(Math, ExpNeverFalls) {
  float last = 0;
  for (float x = -2.0f; x < 2.0f; x = std::nextafter(x + 1e-5f, 3.0f)) {
    const float e = num::exp(x);
    EXPECT_GE(e, last * (1 - 1e-7f)) << x;
    last = e;
  }
}

TEST(Math, RecipIsCloseEverywhere) {
  double worst = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const int exponent = static_cast<int>(random() % 226) - 100;
    const float x = std::ldexp(1.0f + static_cast<float>(random() % (1u << 23)) * 0x1p-23f, exponent);
    worst = std::max(worst, relative(num::recip(x), 1.0 / static_cast<double>(x)));
  }
  EXPECT_LT(worst, 1.3e-7);
  EXPECT_NEAR(num::recip(1.0f), 1.0f, 6e-8);
  EXPECT_NEAR(num::recip(std::nextafter(0x1p126f, 0.0f)), 0x1p-126, 1e-44);
}

TEST(Math, ActivationsAreClose) {
  double sigmoid = 0, silu = 0, gelu = 0;
  for (double d = -30.0; d <= 30.0; d += 0.0007) {
    const float f = static_cast<float>(d);
    const double x = static_cast<double>(f);
    const double s = 1.0 / (1.0 + std::exp(-x));
    sigmoid = std::max(sigmoid, relative(num::sigmoid(f), s));
    silu = std::max(silu, std::abs(num::silu(f) - x * s) / std::max(std::abs(x * s), 1e-30));
    const double g = 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    gelu = std::max(gelu, std::abs(num::gelu(f) - g));
  }
  EXPECT_LT(sigmoid, 4e-7);
  EXPECT_LT(silu, 5e-7);
  EXPECT_LT(gelu, 2e-6);
  EXPECT_NEAR(num::sigmoid(0.0f), 0.5f, 6e-8);
  EXPECT_EQ(num::silu(0.0f), 0.0f);
  EXPECT_EQ(num::gelu(0.0f), 0.0f);
}

TEST(Math, Tree16TakesTheOrderOfTheRule) {
  float p[16], q[16];
  std::mt19937 random(2);
  for (int i = 0; i < 16; ++i) p[i] = q[i] = static_cast<float>(random() % 1000) * 0.37f - 100.0f;
  const auto two = [&](int i) { return (p[i] + p[i + 8]) + (p[i + 4] + p[i + 12]); };
  const float want = (two(0) + two(2)) + (two(1) + two(3));
  EXPECT_EQ(num::tree16(q), want);
}

TEST(Math64, ExpAndLog) {
  double exp_error = 0, log_error = 0;
  for (double x = -60.0; x <= 60.0; x += 0.00113) {
    exp_error = std::max(exp_error, relative(num::exp64(x), std::exp(x)));
    const double y = std::exp(x);
    log_error = std::max(log_error, std::abs(num::log64(y) - std::log(y)) / std::max(1.0, std::abs(x)));
  }
  EXPECT_LT(exp_error, 1e-15);
  EXPECT_LT(log_error, 1e-15);
  EXPECT_EQ(num::exp64(0.0), 1.0);
  EXPECT_EQ(num::log64(1.0), 0.0);
}

TEST(Math64, SineAndCosineOverAllAngles) {
  std::mt19937_64 random(3);
  double small = 0, large = 0;
  for (int i = 0; i < 100000; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const double x = unit * 100.0 - 50.0;
    auto [s, c] = num::sine_cosine64(x);
    small = std::max({small, std::abs(s - std::sin(x)), std::abs(c - std::cos(x))});
    const double y = (unit * 2.0 - 1.0) * 0x1p31;
    std::tie(s, c) = std::tuple(num::sine_cosine64(y).sine, num::sine_cosine64(y).cosine);
    large = std::max({large, std::abs(s - std::sin(y)), std::abs(c - std::cos(y))});
  }
  EXPECT_LT(small, 1e-15);
  EXPECT_LT(large, 1e-15);
}

TEST(Math64, SineAndCosineNearMultiplesOfHalfPi) {
  for (const double k : {1.0, 2.0, 3.0, 1000.0, 10680707.0, 1367130551.0}) {
    for (const double off : {-1e-9, 0.0, 1e-9, 0.785398, -0.785398}) {
      const double x = k * (std::numbers::pi / 2) + off;
      const auto [s, c] = num::sine_cosine64(x);
      EXPECT_NEAR(s, std::sin(x), 1e-15) << x;
      EXPECT_NEAR(c, std::cos(x), 1e-15) << x;
    }
  }
}

}  // namespace
}  // namespace moetier
