#include "model/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "quant/codec.h"
#include "quant/mixture.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

std::vector<float> random_weights(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<std::byte> encoded(TensorType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(type, static_cast<int64_t>(values.size())));
  encode(type, values.data(), bytes.data(), static_cast<int64_t>(values.size()));
  return bytes;
}

std::vector<float> decoded(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  decode(tensor.type, file.data(tensor).data(), values.data(), tensor.elements());
  return values;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

class Quantize : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / fmt::format("moetier-quantize-{}-{}", info->name(), ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  /// A one-layer MoE of 4 experts, in `type` where that is possible.
  GgufWriter small_model(TensorType type) const {
    GgufWriter writer;
    writer.set("general.architecture", std::string("qwen3moe"));
    writer.set("general.name", std::string("small"));
    writer.set("general.file_type", uint32_t{0});
    writer.set("qwen3moe.block_count", uint32_t{1});
    writer.set("qwen3moe.expert_count", uint32_t{4});
    writer.set("qwen3moe.attention.head_count", uint32_t{4});
    writer.set_floats("test.floats", {1.0f, 2.5f});
    unsigned seed = 1;
    const auto add = [&](const std::string& name, TensorType t, std::vector<int64_t> shape) {
      int64_t n = 1;
      for (const int64_t size : shape) n *= size;
      writer.add_tensor(name, t, shape, encoded(t, random_weights(n, seed++)));
    };
    add("token_embd.weight", type, {256, 40});
    add("output.weight", type, {256, 40});
    add("output_norm.weight", TensorType::f32, {256});
    add("blk.0.attn_v.weight", type, {256, 64});
    add("blk.0.ffn_gate_inp.weight", TensorType::f32, {256, 4});
    add("blk.0.ffn_up_exps.weight", type, {256, 96, 4});
    add("blk.0.ffn_down_exps.weight", type == TensorType::q4_k ? TensorType::q5_0 : type, {96, 256, 4});
    return writer;
  }

  fs::path folder_;
};

TEST_F(Quantize, GivesEachTensorItsTypeAndItsOwnBytes) {
  small_model(TensorType::f16).write(at("in.gguf"));
  const QuantizeReport report = quantize_file(at("in.gguf"), at("out.gguf"), "q4_k_m", {.threads = 2});
  const GgufFile in = GgufFile::open(at("in.gguf")), out = GgufFile::open(at("out.gguf"));
  const std::map<std::string, TensorType> want{
      {"token_embd.weight", TensorType::q4_k},          {"output.weight", TensorType::q6_k},
      {"output_norm.weight", TensorType::f32},          {"blk.0.attn_v.weight", TensorType::q6_k},
      {"blk.0.ffn_gate_inp.weight", TensorType::f32},   {"blk.0.ffn_up_exps.weight", TensorType::q4_k},
      {"blk.0.ffn_down_exps.weight", TensorType::q8_0},
  };
  ASSERT_EQ(out.tensors().size(), in.tensors().size());
  for (size_t i = 0; i < in.tensors().size(); ++i) {
    const TensorInfo &from = in.tensors()[i], &to = out.tensors()[i];
    EXPECT_EQ(to.name, from.name);
    EXPECT_EQ(to.shape, from.shape);
    EXPECT_EQ(to.n_dims, from.n_dims);
    EXPECT_EQ(to.type, want.at(to.name)) << to.name;
    EXPECT_TRUE(same_bytes(out.data(to), encoded(to.type, decoded(in, from)))) << to.name;
  }
  EXPECT_EQ(report.tensors, 7);
  EXPECT_EQ(report.converted, 5);
  EXPECT_EQ(report.fallbacks, 1);
  EXPECT_LT(report.output_bytes, report.input_bytes / 2);
  EXPECT_GT(report.bits_per_weight, 4.5);
}

TEST_F(Quantize, KeepsMetadataAndSaysWhatTheFileIs) {
  small_model(TensorType::f32).write(at("in.gguf"));
  quantize_file(at("in.gguf"), at("out.gguf"), "Q8_0");
  const GgufFile out = GgufFile::open(at("out.gguf"));
  EXPECT_EQ(out.need_int("general.file_type"), 7);
  EXPECT_EQ(out.need_int("general.quantization_version"), 2);
  EXPECT_EQ(out.need_string("general.name"), "small");
  EXPECT_EQ(out.get_floats("test.floats"), (std::vector<float>{1.0f, 2.5f}));
  EXPECT_EQ(out.metadata().size(), GgufFile::open(at("in.gguf")).metadata().size() + 1);
}

TEST_F(Quantize, ThreadsAndSplitsDoNotChangeTheFile) {
  small_model(TensorType::bf16).write(at("in.gguf"));
  small_model(TensorType::bf16).write_split(at("parts"), 3);
  quantize_file(at("in.gguf"), at("one.gguf"), "q4_k_m", {.threads = 1});
  quantize_file(at("in.gguf"), at("three.gguf"), "q4_k_m", {.threads = 3});
  quantize_file(at("parts-00002-of-00003.gguf"), at("joined.gguf"), "q4_k_m", {.threads = 2});
  const std::string one = read_file(at("one.gguf"));
  EXPECT_TRUE(one == read_file(at("three.gguf")));
  EXPECT_TRUE(one == read_file(at("joined.gguf")));
}

TEST_F(Quantize, TensorsLargerThanABatchAreWholeAndProgressReachesTheEnd) {
  const int64_t rows = 8200;  // of 256: 2.1 M weights, a batch and a bit
  const std::vector<float> values = random_weights(256 * rows, 3);
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama"));
  writer.add_tensor("blk.0.attn_q.weight", TensorType::f32, {256, rows}, encoded(TensorType::f32, values));
  writer.write(at("in.gguf"));
  uint64_t last = 0, total = 0;
  const auto progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  quantize_file(at("in.gguf"), at("out.gguf"), "q8_0", {.threads = 2, .progress = progress});
  const GgufFile out = GgufFile::open(at("out.gguf"));
  EXPECT_TRUE(same_bytes(out.data(out.tensors()[0]), encoded(TensorType::q8_0, values)));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, out.tensors()[0].bytes);
}

TEST_F(Quantize, RefusesToOverwriteWhatItReads) {
  small_model(TensorType::f16).write(at("in.gguf"));
  small_model(TensorType::f16).write_split(at("parts"), 2);
  fs::create_symlink(at("in.gguf"), at("link.gguf"));
  EXPECT_THROW(quantize_file(at("in.gguf"), at("in.gguf"), "q8_0"), Error);
  EXPECT_THROW(quantize_file(at("in.gguf"), at("link.gguf"), "q8_0"), Error);
  EXPECT_THROW(quantize_file(at("parts-00001-of-00002.gguf"), at("parts-00002-of-00002.gguf"), "q8_0"), Error);
  EXPECT_EQ(GgufFile::open(at("in.gguf")).find_tensor("output.weight")->type, TensorType::f16);
}

/// Expects an error whose sentence holds all parts, and no output file.
void expect_refusal(const std::string& in, const std::string& out, std::string_view type,
                    const std::vector<std::string>& parts) {
  try {
    quantize_file(in, out, type);
    FAIL() << "quantized";
  } catch (const Error& e) {
    for (const std::string& part : parts) EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
  }
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Quantize, RefusesToQuantizeTwiceUnlessAllowed) {
  small_model(TensorType::q4_k).write(at("in.gguf"));
  expect_refusal(at("in.gguf"), at("out.gguf"), "q8_0", {"token_embd.weight", "q4_k", "requantiz"});
  quantize_file(at("in.gguf"), at("out.gguf"), "q8_0", {.threads = 1, .allow_requantize = true});
  EXPECT_EQ(GgufFile::open(at("out.gguf")).find_tensor("output.weight")->type, TensorType::q8_0);
  // Decoding loses nothing, so it needs no leave; nor does copying.
  quantize_file(at("in.gguf"), at("floats.gguf"), "f32");
  const GgufFile in = GgufFile::open(at("in.gguf")), floats = GgufFile::open(at("floats.gguf"));
  for (const TensorInfo& t : in.tensors()) EXPECT_EQ(decoded(in, t), decoded(floats, *floats.find_tensor(t.name)));
}

TEST_F(Quantize, RefusesUnknownTypesAndMissingFiles) {
  small_model(TensorType::f16).write(at("in.gguf"));
  expect_refusal(at("in.gguf"), at("out.gguf"), "q9_x", {"q9_x", "q4_k_m", "mxfp4_moe"});
  try {
    quantize_file(at("in.gguf"), at("out.gguf"), "i8");
    FAIL() << "quantized";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
  }
  expect_refusal(at("absent.gguf"), at("out.gguf"), "q8_0", {"absent.gguf"});
}

TEST_F(Quantize, SaysWhyAndWhatElseWhereAnImportanceMatrixIsNeeded) {
  small_model(TensorType::f16).write(at("in.gguf"));
  for (const char* type : {"iq1_s", "iq1_m", "iq2_xxs", "IQ2_XS", "iq2_s"}) {
    expect_refusal(at("in.gguf"), at("out.gguf"), type, {type, "importance matrix", "q2_k"});
  }
  expect_refusal(at("in.gguf"), at("out.gguf"), "nvfp4", {"nvfp4", "factor", "mxfp4_moe"});
}

TEST_F(Quantize, PureGivesOneTypeToAllMatrices) {
  small_model(TensorType::f16).write(at("in.gguf"));
  quantize_file(at("in.gguf"), at("out.gguf"), "iq4_xs", {.threads = 1, .pure = true});
  const GgufFile out = GgufFile::open(at("out.gguf"));
  for (const char* name : {"token_embd.weight", "output.weight", "blk.0.attn_v.weight", "blk.0.ffn_up_exps.weight"}) {
    EXPECT_EQ(out.find_tensor(name)->type, TensorType::iq4_xs) << name;
  }
  EXPECT_EQ(out.find_tensor("blk.0.ffn_down_exps.weight")->type, TensorType::iq4_nl);  // rows of 96
  EXPECT_EQ(out.find_tensor("output_norm.weight")->type, TensorType::f32);
  EXPECT_EQ(out.need_int("general.file_type"), 30);
}

TEST_F(Quantize, EveryFileTypeGivesTheSameBytesWithAnyThreads) {
  small_model(TensorType::f32).write(at("in.gguf"));
  for (const FileTypeInfo& type : known_file_types()) {
    SCOPED_TRACE(type.name);
    quantize_file(at("in.gguf"), at("one.gguf"), type.name, {.threads = 1});
    quantize_file(at("in.gguf"), at("three.gguf"), type.name, {.threads = 3});
    EXPECT_TRUE(read_file(at("one.gguf")) == read_file(at("three.gguf")));
    const GgufFile in = GgufFile::open(at("in.gguf")), out = GgufFile::open(at("one.gguf"));
    EXPECT_EQ(out.need_int("general.file_type"), static_cast<int64_t>(type.file_type));
    const TensorInfo& up = *out.find_tensor("blk.0.ffn_up_exps.weight");
    EXPECT_EQ(up.type, type.base);
    EXPECT_TRUE(same_bytes(out.data(up), encoded(up.type, decoded(in, *in.find_tensor(up.name)))));
  }
}

TEST_F(Quantize, RefusesWeightsThatAreNotFinite) {
  std::vector<float> values = random_weights(256 * 256, 4);
  values[40000] = std::nanf("");
  GgufWriter writer;
  writer.add_tensor("blk.0.attn_q.weight", TensorType::f32, {256, 256}, encoded(TensorType::f32, values));
  writer.write(at("in.gguf"));
  expect_refusal(at("in.gguf"), at("out.gguf"), "q4_k_m", {"blk.0.attn_q.weight", "nan"});
}

TEST_F(Quantize, RefusesTypesItCannotDecodeAndKeepsTables) {
  GgufWriter writer;
  writer.add_tensor("blk.0.ids.weight", TensorType::i32, {16, 4}, std::vector<std::byte>(256));
  writer.add_tensor("blk.0.attn_q.weight", TensorType::q2_0, {256, 2}, std::vector<std::byte>(144));
  writer.write(at("in.gguf"));
  expect_refusal(at("in.gguf"), at("out.gguf"), "q8_0", {"blk.0.attn_q.weight", "q2_0"});
  GgufWriter table;
  table.add_tensor("blk.0.ids.weight", TensorType::i32, {16, 4}, std::vector<std::byte>(256));
  table.write(at("table.gguf"));
  quantize_file(at("table.gguf"), at("out.gguf"), "q8_0");
  EXPECT_EQ(GgufFile::open(at("out.gguf")).tensors()[0].type, TensorType::i32);
}

// ---- against files that the stock quantizer wrote (the shared folder, optional) ----

fs::path oracle_folder() {
  const char* variable = std::getenv("MOETIER_SHARED");
  return fs::path(variable != nullptr ? variable : MOETIER_SOURCE_DIR "/../shared") / "oracle";
}

void expect_same_tensors(const GgufFile& got, const GgufFile& want) {
  EXPECT_EQ(got.need_int("general.file_type"), want.need_int("general.file_type"));
  EXPECT_EQ(got.need_int("general.quantization_version"), want.need_int("general.quantization_version"));
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  for (const TensorInfo& tensor : want.tensors()) {
    const TensorInfo* mine = got.find_tensor(tensor.name);
    ASSERT_NE(mine, nullptr) << tensor.name;
    EXPECT_EQ(type_name(mine->type), type_name(tensor.type)) << tensor.name;
    EXPECT_TRUE(same_bytes(got.data(*mine), want.data(tensor))) << tensor.name << " " << type_name(tensor.type);
  }
}

class QuantizeLikeStock : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizeLikeStock, EveryTensorHasTheSameBytes) {
  const std::string architecture = GetParam();
  const fs::path oracle = oracle_folder();
  if (!fs::exists(oracle / "models")) GTEST_SKIP() << "there is no shared folder with stock files";
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("moetier-stock-{}-{}", architecture, ::getpid());
  fs::create_directories(folder);
  // The stock files were made from this float32 original, which is not kept but can be made again.
  const std::string original = (folder / "original.gguf").string(), ours = (folder / "ours.gguf").string();
  const std::string command = fmt::format("python3 '{}' tiny {} '{}' --seed 3 >/dev/null 2>&1",
                                          (oracle / "ggufgen.py").string(), architecture, original);
  const bool made = std::system(command.c_str()) == 0 && fs::exists(original);
  int compared = 0;
  for (const FileTypeInfo& type : known_file_types()) {
    const fs::path stock = oracle / "models" / fmt::format("{}-{}.gguf", architecture, type.name);
    if (!made || !fs::exists(stock)) continue;
    SCOPED_TRACE(stock.filename());
    quantize_file(original, ours, type.name, {.threads = 2});
    expect_same_tensors(GgufFile::open(ours), GgufFile::open(stock.string()));
    ++compared;
  }
  fs::remove_all(folder);
  if (!made) GTEST_SKIP() << "ggufgen.py, which makes the original, cannot be run with python3";
  if (compared == 0) GTEST_SKIP() << "the shared folder has no stock files of " << architecture;
}

INSTANTIATE_TEST_SUITE_P(Architectures, QuantizeLikeStock,
                         ::testing::Values("qwen3moe", "qwen2moe", "olmoe", "llama", "deepseek2", "gpt-oss"),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(QuantizeF16, GivesTheTypesOfTheStockFiles) {
  const fs::path models = oracle_folder() / "models";
  const std::string in = (models / "qwen3moe-f16.gguf").string();
  if (!fs::exists(in)) GTEST_SKIP() << "the shared folder has no qwen3moe-f16.gguf";
  const std::string out = fmt::format("{}/moetier-f16-{}.gguf", ::testing::TempDir(), ::getpid());
  quantize_file(in, out, "q4_k_m", {.threads = 2});
  const GgufFile got = GgufFile::open(out), want = GgufFile::open((models / "qwen3moe-q4_k_m.gguf").string());
  for (const TensorInfo& tensor : want.tensors()) {
    EXPECT_EQ(type_name(got.find_tensor(tensor.name)->type), type_name(tensor.type)) << tensor.name;
  }
  fs::remove(out);
}

}  // namespace
}  // namespace moetier
