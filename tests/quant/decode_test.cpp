#include <gmock/gmock.h>

#include "base/error.h"
#include "golden.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "reference.h"

namespace moetier {
namespace {

using namespace testing;  // NOLINT: the room's test helpers and gtest's names

class Decode : public ::testing::TestWithParam<TensorType> {};
class DecodeGolden : public Decode {};

std::vector<float> decoded(TensorType type, const std::vector<std::byte>& blocks) {
  const TypeInfo& info = type_info(type);
  std::vector<float> out(blocks.size() / info.block_bytes * static_cast<size_t>(info.block_length));
  decode(type, blocks.data(), out.data(), static_cast<int64_t>(out.size()));
  return out;
}

TEST_P(DecodeGolden, GivesTheGoldenFloatsToTheBit) {
  const std::string name(type_name(GetParam()));
  const std::vector<float> want = golden_floats(name + ".f32"), got = decoded(GetParam(), golden_bytes(name + ".blk"));
  ASSERT_EQ(got.size(), want.size());
  ASSERT_GE(got.size(), 256u);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << name << " weight " << i;
  }
}

TEST_P(Decode, AgreesWithFloat64OnRandomBlocks) {
  const TypeInfo& info = type_info(GetParam());
  const size_t n_blocks = 4096 / static_cast<size_t>(info.block_length) + 3;
  const std::vector<std::byte> blocks = random_blocks(GetParam(), n_blocks, 5);
  const std::vector<float> got = decoded(GetParam(), blocks);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto length = static_cast<size_t>(info.block_length);
    const std::byte* block = blocks.data() + i / length * info.block_bytes;
    const ReferenceWeight want = reference_weight(GetParam(), block, static_cast<int>(i % length));
    // At most three roundings, each relative to the terms; plus the spacing of subnormals.
    ASSERT_NEAR(got[i], want.value, want.terms * 0x1p-23 + 0x1p-149) << info.name << " weight " << i;
  }
}

TEST_P(Decode, WritesExactlyTheWeightsAskedFor) {
  const TypeInfo& info = type_info(GetParam());
  const std::vector<std::byte> blocks = random_blocks(GetParam(), 3, 6);
  const auto n = static_cast<size_t>(info.block_length) * 2;
  std::vector<float> out(n + 1, 42.0f);
  decode(GetParam(), blocks.data(), out.data(), static_cast<int64_t>(n));
  EXPECT_EQ(out[n], 42.0f);
  // The last block alone, at an odd address, in memory that ends with it.
  std::vector<std::byte> shifted(info.block_bytes + 1);
  std::memcpy(shifted.data() + 1, blocks.data() + info.block_bytes, info.block_bytes);
  std::vector<float> again(static_cast<size_t>(info.block_length));
  decode(GetParam(), shifted.data() + 1, again.data(), info.block_length);
  EXPECT_EQ(std::memcmp(again.data(), out.data() + info.block_length, again.size() * sizeof(float)), 0);
  decode(GetParam(), nullptr, nullptr, 0);
}

const auto kName = [](const ::testing::TestParamInfo<TensorType>& p) { return std::string(type_name(p.param)); };
INSTANTIATE_TEST_SUITE_P(Types, Decode, ::testing::ValuesIn(computable_types()), kName);
/// f32 stands for itself.
INSTANTIATE_TEST_SUITE_P(Types, DecodeGolden,
                         ::testing::ValuesIn(computable_types().begin() + 1, computable_types().end()), kName);

TEST(DecodeErrors, PartOfABlockIsRefused) {
  std::byte block[256]{};
  float out[256];
  EXPECT_THROW(decode(TensorType::q4_0, block, out, 31), Error);
  EXPECT_THROW(decode(TensorType::q6_k, block, out, 128), Error);
  EXPECT_THROW(decode(TensorType::q8_0, block, out, -32), Error);
}

TEST(DecodeErrors, TypesWithoutADecoderAreRefusedByName) {
  std::byte block[256]{};
  float out[256];
  try {
    decode(TensorType::q2_0, block, out, 256);
    FAIL() << "decoded";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("q2_0"));
  }
}

TEST(DecodeF16, AgreesWithTheScalarFunctionOnEveryBitPattern) {
  std::vector<std::byte> all(2 * 65536);
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto u = static_cast<uint16_t>(h);
    std::memcpy(all.data() + 2 * h, &u, sizeof(u));
  }
  const std::vector<float> got = decoded(TensorType::f16, all);
  for (uint32_t h = 0; h < 65536; ++h) {
    const float want = f16_to_f32(static_cast<uint16_t>(h));
    ASSERT_EQ(std::bit_cast<uint32_t>(got[h]), std::bit_cast<uint32_t>(want)) << h;
    if ((h & 0x7c00) != 0x7c00) {
      ASSERT_EQ(want, reference::f16(all.data() + 2 * h)) << h;
    }
  }
}

TEST(Half, RoundTripsEveryFiniteF16) {
  for (uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7fff) > 0x7c00) continue;
    ASSERT_EQ(f32_to_f16(f16_to_f32(static_cast<uint16_t>(h))), h);
  }
}

TEST(Half, RoundsToNearestEven) {
  // For every pair of neighbours: just below, at, and just above the middle.
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = f16_to_f32(static_cast<uint16_t>(h)), high = f16_to_f32(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(f32_to_f16(middle), h + (h & 1));
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), h + 1);
  }
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(-1e9f), 0xfc00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::nanf("")))));
}

TEST(Half, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  for (uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7fff) > 0x7f80) continue;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(static_cast<uint16_t>(h))), h);
  }
}

}  // namespace
}  // namespace moetier
