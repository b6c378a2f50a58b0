#include "experts/entry_map.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/raw_gguf.h"

namespace moetier {
namespace {

using ::testing::HasSubstr;

struct Stack {
  std::string name;
  TensorType type;
  std::vector<int64_t> shape;
};

/// A file with these tensors, one after another.
std::string bytes_of(const std::vector<Stack>& stacks) {
  test::RawGguf g;
  for (const Stack& s : stacks) {
    int64_t elements = 1;
    for (const int64_t size : s.shape) elements *= size;
    const TypeInfo& type = type_info(s.type);
    g.tensor(s.name, s.shape, static_cast<int32_t>(s.type), g.data.size());
    g.bytes(static_cast<size_t>(elements / type.block_length) * type.block_bytes);
    g.data.resize((g.data.size() + 31) / 32 * 32);
  }
  return g.build();
}

std::vector<Stack> layer(int n, int64_t d, int64_t f, int64_t e, TensorType type = TensorType::q4_0) {
  const std::string b = fmt::format("blk.{}.", n);
  return {{b + "attn_norm.weight", TensorType::f32, {d}},
          {b + "ffn_down_exps.weight", type, {f, d, e}},
          {b + "ffn_gate_exps.weight", type, {d, f, e}},
          {b + "ffn_gate_inp.weight", TensorType::f32, {d, e}},
          {b + "ffn_up_exps.weight", type, {d, f, e}}};
}

std::vector<Stack> operator+(std::vector<Stack> a, const std::vector<Stack>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string error_of(const std::vector<Stack>& stacks, int top_k = 2) {
  const std::string bytes = bytes_of(stacks);
  return test::message_of<Error>(
      [&] { (void)EntryMap::from_gguf(GgufFile::parse(test::as_bytes(bytes), "m.gguf"), top_k); });
}

TEST(EntryMap, FindsEverySlice) {
  const std::string bytes = bytes_of(layer(3, 64, 32, 5) + layer(1, 64, 32, 5, TensorType::q8_0));
  const GgufFile file = GgufFile::parse(test::as_bytes(bytes), "m.gguf");
  const EntryMap map = EntryMap::from_gguf(file, 2);
  ASSERT_EQ(map.layers.size(), 2u);
  EXPECT_EQ(map.layers[0].layer, 1) << "ascending, whatever the file's order";
  EXPECT_EQ(map.find(2), nullptr);
  const LayerEntries* third = map.find(3);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->n_expert, 5);
  EXPECT_EQ(third->top_k, 2);
  ASSERT_EQ(third->slices.size(), 3u);
  EXPECT_EQ(third->slices[0].projection, Projection::gate);
  EXPECT_EQ(third->slices[1].projection, Projection::up);
  EXPECT_EQ(third->slices[2].projection, Projection::down);
  EXPECT_EQ(third->slices[2].columns, 32);
  EXPECT_EQ(third->slices[2].rows, 64);
  EXPECT_EQ(third->slices[0].type, TensorType::q4_0);
  EXPECT_EQ(third->slices[0].offset, file.find_tensor("blk.3.ffn_gate_exps.weight")->offset);
  EXPECT_EQ(third->slices[0].slice_bytes, 64u * 32 / 32 * 18);
  EXPECT_EQ(third->entry_bytes(), 3u * 64 * 18);
  EXPECT_EQ(map.layers[0].entry_bytes(), 3u * 64 * 34);
  EXPECT_EQ(map.total_bytes(), 5u * 3 * 64 * (18 + 34));
  EXPECT_EQ(map.token_cycle_bytes(), 2u * 3 * 64 * (18 + 34));
}

TEST(EntryMap, TheTokenCycleStopsAtTheExpertsThereAre) {
  const std::string bytes = bytes_of(layer(0, 32, 32, 3));
  const EntryMap map = EntryMap::from_gguf(GgufFile::parse(test::as_bytes(bytes), "m"), 8);
  EXPECT_EQ(map.token_cycle_bytes(), map.total_bytes());
}

TEST(EntryMap, ReadsFusedAndUngatedStacks) {
  const std::string bytes = bytes_of({{"blk.0.ffn_gate_up_exps.weight", TensorType::f16, {8, 24, 4}},
                                      {"blk.0.ffn_down_exps.weight", TensorType::f16, {12, 8, 4}},
                                      {"blk.10.ffn_up_exps.weight", TensorType::f32, {8, 6, 2}},
                                      {"blk.10.ffn_down_exps.weight", TensorType::f32, {6, 8, 2}}});
  const EntryMap map = EntryMap::from_gguf(GgufFile::parse(test::as_bytes(bytes), "m"), 1);
  ASSERT_EQ(map.layers.size(), 2u);
  ASSERT_EQ(map.layers[0].slices.size(), 2u);
  EXPECT_EQ(map.layers[0].slices[0].projection, Projection::gate_up);
  EXPECT_EQ(map.layers[0].slices[0].rows, 24);
  EXPECT_EQ(map.layers[0].slices[1].projection, Projection::down);
  ASSERT_EQ(map.layers[1].slices.size(), 2u);
  EXPECT_EQ(map.layers[1].slices[0].projection, Projection::up);
}

TEST(EntryMap, DenseModelsAndOtherNamesHaveNone) {
  const std::vector<int64_t> shape{32, 32, 2};
  const std::string bytes = bytes_of({{"blk.0.ffn_up.weight", TensorType::f32, {32, 32}},
                                      {"blk.0.ffn_gate_exps.bias", TensorType::f32, {32, 2}},
                                      {"blk.00.ffn_up_exps.weight", TensorType::f32, shape},
                                      {"blk.-1.ffn_up_exps.weight", TensorType::f32, shape},
                                      {"blk.+1.ffn_up_exps.weight", TensorType::f32, shape},
                                      {"blk..ffn_up_exps.weight", TensorType::f32, shape},
                                      {"blk.99999999999.ffn_up_exps.weight", TensorType::f32, shape},
                                      {"blk.1.ffn_up_exps.weights", TensorType::f32, shape},
                                      {"x.blk.1.ffn_up_exps.weight", TensorType::f32, shape}});
  const EntryMap map = EntryMap::from_gguf(GgufFile::parse(test::as_bytes(bytes), "m"), 0);
  EXPECT_TRUE(map.layers.empty());
  EXPECT_EQ(map.total_bytes(), 0u);
  EXPECT_EQ(map.token_cycle_bytes(), 0u);
}

TEST(EntryMap, InconsistentStacksAreErrors) {
  auto stacks = layer(2, 64, 32, 5);
  stacks[1].shape = {32, 64, 4};
  EXPECT_THAT(error_of(stacks),
              HasSubstr("m.gguf: tensor blk.2.ffn_down_exps.weight has 4 experts, but blk.2.ffn_up_exps.weight has 5"));
  stacks[1].shape = {32, 32, 5};
  EXPECT_THAT(error_of(stacks),
              HasSubstr("tensor blk.2.ffn_down_exps.weight has matrices of 32 columns and 32 rows, but "
                        "blk.2.ffn_up_exps.weight calls for 32 and 64"));
  stacks = layer(2, 64, 32, 5);
  stacks[2].shape = {64, 64, 5};
  EXPECT_THAT(error_of(stacks), HasSubstr("tensor blk.2.ffn_gate_exps.weight has matrices of 64 columns and 64 rows"));
  stacks[2].shape = {64, 32};
  EXPECT_THAT(error_of(stacks), HasSubstr("tensor blk.2.ffn_gate_exps.weight has 2 dimensions"));
  stacks[2].shape = {64, 32, 1, 5};
  EXPECT_THAT(error_of(stacks), HasSubstr("tensor blk.2.ffn_gate_exps.weight has 4 dimensions"));
  stacks = layer(2, 64, 32, 5);
  stacks.erase(stacks.begin() + 1);
  EXPECT_THAT(error_of(stacks), HasSubstr("blk.2.ffn_down_exps.weight is missing"));
  stacks = layer(2, 64, 32, 5);
  stacks.pop_back();
  EXPECT_THAT(error_of(stacks), HasSubstr("blk.2.ffn_up_exps.weight is missing"));
  stacks = layer(2, 64, 32, 5);
  stacks.push_back({"blk.2.ffn_gate_up_exps.weight", TensorType::f32, {64, 64, 5}});
  EXPECT_THAT(error_of(stacks), HasSubstr("blk.2.ffn_gate_up_exps.weight beside blk.2.ffn_gate_exps.weight"));
  EXPECT_THAT(error_of({{"blk.0.ffn_gate_up_exps.weight", TensorType::f32, {4, 7, 2}},
                        {"blk.0.ffn_down_exps.weight", TensorType::f32, {3, 4, 2}}}),
              HasSubstr("has 7 rows, and gate and up must be halves"));
  EXPECT_THAT(error_of({{"blk.0.ffn_gate_up_exps.weight", TensorType::f32, {4, 8, 2}},
                        {"blk.0.ffn_down_exps.weight", TensorType::f32, {8, 4, 2}}}),
              HasSubstr("has matrices of 8 columns and 4 rows, but blk.0.ffn_gate_up_exps.weight calls for 4 and 4"));
  EXPECT_THAT(error_of(layer(0, 32, 32, 2), 0), HasSubstr("expert_used_count must be at least 1"));
}

}  // namespace
}  // namespace moetier
