#include "compute/cpu/activation_codes.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "compute/kernel_fixture.h"
#include "quant/half.h"

namespace moetier {
namespace {

using namespace testing_compute;

constexpr ActivationKind kKinds[] = {ActivationKind::blocks32, ActivationKind::blocks256};

TEST(ActivationCodes, UnitsGiveTheSameBytes) {
  for (const ActivationKind kind : kKinds) {
    for (int variant = 0; variant < kActivationVariants; ++variant) {
      for (unsigned seed = 0; seed < 20; ++seed) {
        const Floats x = make_activations(1024, seed, variant);
        const Bytes portable = encode_row(kind, x.data(), 1024);
        for (const Isa isa : isas()) {
          const Bytes other = encode_row(kind, x.data(), 1024, isa);
          ASSERT_EQ(std::memcmp(portable.data(), other.data(), other.size()), 0)
              << "block " << activation_block(kind) << ", variant " << variant << ", seed " << seed;
        }
      }
    }
  }
}

TEST(ActivationCodes, StandForTheirActivations) {
  for (const ActivationKind kind : kKinds) {
    for (const float size : {1e-25f, 1e-3f, 1.0f, 1e9f, 1e36f}) {
      const int64_t columns = 512, length = activation_block(kind);
      const Floats x = noise(512, 7, size);
      const std::vector<double> decoded = decode_row(kind, encode_row(kind, x.data(), columns), columns);
      for (int64_t begin = 0; begin < columns; begin += length) {
        double largest = 0;
        for (int64_t c = begin; c < begin + length; ++c) {
          largest = std::max(largest, std::fabs(static_cast<double>(x[static_cast<size_t>(c)])));
        }
        for (int64_t c = begin; c < begin + length; ++c) {
          const auto i = static_cast<size_t>(c);
          // Half a step, a little for the rounding of scale and reciprocal, and for 32-blocks 127 codes times the 2^-11
          // that rounding the scale to 11 bits may cost.
          const double steps = 0.50005 + (kind == ActivationKind::blocks32 ? 127.0 / 2048 : 0.0);
          ASSERT_LE(std::fabs(decoded[i] - static_cast<double>(x[i])), largest / 127 * steps) << i;
        }
      }
    }
  }
}

TEST(ActivationCodes, TheLargestGetsTheLastCodeAndTiesGoToEven) {
  Floats x(32, 0.0f);
  x[0] = 127.0f, x[1] = -127.0f, x[2] = 0.5f, x[3] = 1.5f, x[4] = -2.5f, x[5] = 3.5f;
  for (const Isa isa : isas()) {
    const Bytes row = encode_row(ActivationKind::blocks32, x.data(), 32, isa);
    const auto& block = *reinterpret_cast<const Codes32*>(row.data());
    const int expected[] = {127, -127, 0, 2, -2, 4};
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(block.codes[i], expected[i]) << i;
    EXPECT_EQ(block.sum, 4);
    EXPECT_EQ(block.scale, 127.0f * (1.0f / 127.0f));
  }
}

TEST(ActivationCodes, ScalesOf32BlocksHave11SignificantBits) {
  const Floats x = noise(512, 11, 3.0f);
  for (const Isa isa : isas()) {
    const Bytes row = encode_row(ActivationKind::blocks32, x.data(), 512, isa);
    for (size_t b = 0; b < 16; ++b) {
      const float scale = reinterpret_cast<const Codes32*>(row.data())[b].scale;
      EXPECT_EQ(scale, f16_to_f32(f32_to_f16(scale))) << "within the range of f16 it is a half float";
    }
  }
}

TEST(ActivationCodes, SumsAreThoseOfTheCodes) {
  const Floats x = make_activations(512, 3, 1);
  for (const Isa isa : isas()) {
    const Bytes row = encode_row(ActivationKind::blocks256, x.data(), 512, isa);
    for (int b = 0; b < 2; ++b) {
      const Codes256& block = reinterpret_cast<const Codes256*>(row.data())[b];
      for (int k = 0; k < 16; ++k) {
        int sum = 0;
        for (int i = 0; i < 16; ++i) sum += block.codes[16 * k + i];
        EXPECT_EQ(block.sums16[k], sum);
      }
      for (int k = 0; k < 8; ++k) EXPECT_EQ(block.sums32[k], block.sums16[2 * k] + block.sums16[2 * k + 1]);
    }
  }
}

TEST(ActivationCodes, BelowTheFlushLimitEverythingIsZero) {
  Floats x(256, 0x1.fffffep-101f);
  x[9] = -0x1p-149f;
  for (const Isa isa : isas()) {
    for (const ActivationKind kind : kKinds) {
      for (const std::byte b : encode_row(kind, x.data(), 256, isa)) ASSERT_EQ(b, std::byte{0});
    }
  }
}

TEST(ActivationCodes, ANaNMakesItsBlocksScaleANaNAndNoOther) {
  for (const ActivationKind kind : kKinds) {
    const auto length = static_cast<size_t>(activation_block(kind));
    for (const float nan : {NAN, -NAN, std::bit_cast<float>(0xffffffffu), std::bit_cast<float>(0x7f800001u)}) {
      for (const size_t at : {length, length + 7, 2 * length - 1}) {
        for (const float other : {1.0f, 0.0f}) {
          Floats x(3 * length, other);
          x[at] = nan;
          for (const Isa isa : isas()) {
            const std::vector<double> decoded =
                decode_row(kind, encode_row(kind, x.data(), static_cast<int64_t>(x.size()), isa), 3 * length);
            for (size_t i = 0; i < x.size(); ++i) {
              ASSERT_EQ(std::isnan(decoded[i]), i / length == 1) << "NaN at " << at << ", column " << i;
            }
          }
        }
      }
    }
  }
}

TEST(ActivationCodes, AnInfinityMakesItsBlocksScaleInfinite) {
  Floats x(256, 1.0f);
  x[9] = -INFINITY;
  for (const Isa isa : isas()) {
    EXPECT_EQ(reinterpret_cast<const Codes32*>(encode_row(ActivationKind::blocks32, x.data(), 256, isa).data())->scale,
              INFINITY);
    EXPECT_EQ(
        reinterpret_cast<const Codes256*>(encode_row(ActivationKind::blocks256, x.data(), 256, isa).data())->scale,
        INFINITY);
  }
}

}  // namespace
}  // namespace moetier
