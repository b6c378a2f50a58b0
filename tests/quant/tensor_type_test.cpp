#include "quant/tensor_type.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "quant/blocks.h"

namespace moetier {
namespace {

TEST(TensorTypes, AllIdsOfTheFormatAreKnown) {
  std::set<int32_t> ids;
  for (const TypeInfo& info : known_types()) ids.insert(static_cast<int32_t>(info.type));
  const std::set<int32_t> retired{4, 5, 31, 32, 33, 36, 37, 38};
  for (int32_t id = -2; id < 60; ++id) {
    const bool valid = id >= 0 && id < 43 && !retired.contains(id);
    EXPECT_EQ(ids.contains(id), valid) << id;
    EXPECT_EQ(find_type(id) != nullptr, valid) << id;
    if (valid) {
      EXPECT_EQ(static_cast<int32_t>(find_type(id)->type), id);
    }
  }
}

TEST(TensorTypes, NamesAreFoundInAnyCaseAndAreUnique) {
  std::set<std::string_view> names;
  for (const TypeInfo& info : known_types()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    ASSERT_NE(find_type(info.name), nullptr);
    EXPECT_EQ(find_type(info.name)->type, info.type);
    EXPECT_EQ(type_name(info.type), info.name);
  }
  EXPECT_EQ(find_type("Q4_K")->type, TensorType::q4_k);
  EXPECT_EQ(find_type("MxFp4")->type, TensorType::mxfp4);
  EXPECT_EQ(find_type("q4"), nullptr);
  EXPECT_EQ(find_type("q4_k "), nullptr);
  EXPECT_EQ(find_type(""), nullptr);
}

TEST(TensorTypes, BitsPerWeightAreThoseOfTheFormat) {
  const std::map<std::string_view, double> bits{
      {"f32", 32},        {"f16", 16},         {"q4_0", 4.5},     {"q4_1", 5},     {"q5_0", 5.5},
      {"q5_1", 6},        {"q8_0", 8.5},       {"q8_1", 9},       {"q2_k", 2.625}, {"q3_k", 3.4375},
      {"q4_k", 4.5},      {"q5_k", 5.5},       {"q6_k", 6.5625},  {"q8_k", 9.125}, {"iq2_xxs", 2.0625},
      {"iq2_xs", 2.3125}, {"iq3_xxs", 3.0625}, {"iq1_s", 1.5625}, {"iq4_nl", 4.5}, {"iq3_s", 3.4375},
      {"iq2_s", 2.5625},  {"iq4_xs", 4.25},    {"i8", 8},         {"i16", 16},     {"i32", 32},
      {"i64", 64},        {"f64", 64},         {"iq1_m", 1.75},   {"bf16", 16},    {"tq1_0", 1.6875},
      {"tq2_0", 2.0625},  {"mxfp4", 4.25},     {"nvfp4", 4.5},    {"q1_0", 1.125}, {"q2_0", 2.25},
  };
  EXPECT_EQ(bits.size(), known_types().size());
  for (const TypeInfo& info : known_types()) {
    EXPECT_EQ(8.0 * static_cast<double>(info.block_bytes) / static_cast<double>(info.block_length), bits.at(info.name))
        << info.name;
  }
}

TEST(RowBytes, CountsBlocks) {
  EXPECT_EQ(row_bytes(TensorType::f32, 3), 12u);
  EXPECT_EQ(row_bytes(TensorType::q4_0, 0), 0u);
  EXPECT_EQ(row_bytes(TensorType::q4_0, 96), 54u);
  EXPECT_EQ(row_bytes(TensorType::q6_k, 2048), 1680u);
  EXPECT_EQ(row_bytes(TensorType::mxfp4, 64), 34u);
}

TEST(RowBytes, RefusesPartsOfBlocksAndWhatCannotBeCounted) {
  EXPECT_THROW(row_bytes(TensorType::q4_0, 33), Error);
  EXPECT_THROW(row_bytes(TensorType::q4_k, 128), Error);
  EXPECT_THROW(row_bytes(TensorType::f32, -1), Error);
  EXPECT_THROW(row_bytes(TensorType::f64, std::numeric_limits<int64_t>::max()), Error);
  EXPECT_THROW(row_bytes(static_cast<TensorType>(4), 32), Error);
  EXPECT_THROW(type_info(static_cast<TensorType>(-7)), Error);
}

TEST(Blocks, SizesAreThoseOfTheTable) {
  EXPECT_EQ(sizeof(BlockQ4_0), type_info(TensorType::q4_0).block_bytes);
  EXPECT_EQ(sizeof(BlockQ4_1), type_info(TensorType::q4_1).block_bytes);
  EXPECT_EQ(sizeof(BlockQ5_0), type_info(TensorType::q5_0).block_bytes);
  EXPECT_EQ(sizeof(BlockQ5_1), type_info(TensorType::q5_1).block_bytes);
  EXPECT_EQ(sizeof(BlockQ8_0), type_info(TensorType::q8_0).block_bytes);
  EXPECT_EQ(sizeof(BlockIQ4_NL), type_info(TensorType::iq4_nl).block_bytes);
  EXPECT_EQ(sizeof(BlockMXFP4), type_info(TensorType::mxfp4).block_bytes);
  EXPECT_EQ(sizeof(BlockQ4_K), type_info(TensorType::q4_k).block_bytes);
  EXPECT_EQ(sizeof(BlockQ5_K), type_info(TensorType::q5_k).block_bytes);
  EXPECT_EQ(sizeof(BlockQ6_K), type_info(TensorType::q6_k).block_bytes);
}

TEST(Blocks, ScalesAndMinsSurvivePacking) {
  ScalesMins in{};
  for (int k = 0; k < 8; ++k) {
    for (int value = 0; value < 64; ++value) {
      for (int j = 0; j < 8; ++j) {
        in.scales[j] = static_cast<uint8_t>((value * (j + 1) + k) % 64);
        in.mins[j] = static_cast<uint8_t>((value * 5 + j * 9 + k) % 64);
      }
      uint8_t packed[12];
      pack_scales_mins(in, packed);
      const ScalesMins out = unpack_scales_mins(packed);
      for (int j = 0; j < 8; ++j) {
        ASSERT_EQ(out.scales[j], in.scales[j]);
        ASSERT_EQ(out.mins[j], in.mins[j]);
      }
    }
  }
}

TEST(Blocks, E8m0IsAPowerOfTwo) {
  for (int e = 0; e < 256; ++e) EXPECT_EQ(e8m0_half(static_cast<uint8_t>(e)), std::ldexp(1.0, e - 128)) << e;
}

}  // namespace
}  // namespace moetier
