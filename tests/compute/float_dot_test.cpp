#include "compute/cpu/float_dot.h"

#include <cmath>

#include "compute/kernel_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

float flush(float x) {
  return std::fabs(x) < 0x1p-100f ? 0.0f : x;
}

/// The rule, word for word.
float by_rule(const Floats& w, const Floats& x, bool with_flush) {
  Floats p(16, 0.0f);
  for (size_t c = 0; c < w.size(); ++c) {
    const float product = w[c] * x[c];
    p[c % 16] = p[c % 16] + (with_flush ? flush(product) : product);
  }
  return plain_tree16(p);
}

void expect_equal(float got, float want, size_t n) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << n << " columns";
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << n << " columns";
  }
}

TEST(FloatDot, FollowsTheRuleForAnyLength) {
  for (const Isa isa : isas()) {
    const FloatDots& dots = float_dots(isa);
    for (size_t n = 0; n <= 70; ++n) {
      for (int variant = 0; variant < kActivationVariants; ++variant) {
        const unsigned seed = static_cast<unsigned>(n) * 7 + static_cast<unsigned>(variant);
        const Floats x = make_activations(n, seed, variant), w = make_activations(n, seed + 1000, (variant + 2) % 6);
        std::vector<uint16_t> f16(n), bf16(n);
        Floats from_f16(n), from_bf16(n);
        for (size_t i = 0; i < n; ++i) {
          f16[i] = f32_to_f16(w[i]), bf16[i] = f32_to_bf16(w[i]);
          from_f16[i] = f16_to_f32(f16[i]), from_bf16[i] = bf16_to_f32(bf16[i]);
        }
        const auto count = static_cast<int64_t>(n);
        expect_equal(dots.f32(w.data(), x.data(), count), by_rule(w, x, false), n);
        expect_equal(dots.f32_flush(w.data(), x.data(), count), by_rule(w, x, true), n);
        expect_equal(dots.f16(f16.data(), x.data(), count), by_rule(from_f16, x, false), n);
        expect_equal(dots.f16_flush(f16.data(), x.data(), count), by_rule(from_f16, x, true), n);
        expect_equal(dots.bf16(bf16.data(), x.data(), count), by_rule(from_bf16, x, false), n);
        expect_equal(dots.bf16_flush(bf16.data(), x.data(), count), by_rule(from_bf16, x, true), n);
      }
    }
  }
}

TEST(FloatDot, FlushesProductsBelowTheLimit) {
  const Floats w(16, 0x1p-50f);
  const Floats below(16, 0x1.fffffep-51f), at(16, 0x1p-50f);
  for (const Isa isa : isas()) {
    EXPECT_EQ(float_dots(isa).f32_flush(w.data(), below.data(), 16), 0.0f);
    EXPECT_GT(float_dots(isa).f32(w.data(), below.data(), 16), 0.0f);
    EXPECT_EQ(float_dots(isa).f32_flush(w.data(), at.data(), 16), 0x1p-96f);
  }
}

}  // namespace
}  // namespace moetier
