#include "gguf/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "gguf/raw_gguf.h"

namespace moetier {
namespace {

using test::as_bytes;
using test::raw;
using test::raw_string;
using test::RawGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  return test::message_of<Error>(action);
}

/// One key of every type and two tensors.
RawGguf sample() {
  RawGguf g;
  g.kv("a.u8", 0, raw<uint8_t>(200)).kv("a.i8", 1, raw<int8_t>(-100)).kv("a.u16", 2, raw<uint16_t>(60000));
  g.kv("a.i16", 3, raw<int16_t>(-30000)).kv("a.u32", 4, raw<uint32_t>(4000000000u));
  g.kv("a.i32", 5, raw<int32_t>(-2000000000)).kv("a.f32", 6, raw(1.5f)).kv("a.bool", 7, raw<uint8_t>(1));
  g.kv("a.string", 8, raw_string("h\xc3\xa9llo")).kv("a.u64", 10, raw<uint64_t>(1ull << 60));
  g.kv("a.i64", 11, raw<int64_t>(-(1ll << 60))).kv("a.f64", 12, raw(-0.25));
  g.kv_array("a.ints", 5, 3, raw(7) + raw(-8) + raw(9)).kv_array("a.bools", 7, 2, std::string("\1\0", 2));
  g.kv_array("a.strings", 8, 2, raw_string("x") + raw_string("")).kv_array("a.floats", 6, 1, raw(0.5f));
  const std::string inner = raw<uint32_t>(0) + raw<uint64_t>(2) + "\x01\x02";
  g.kv_array("a.nested", 9, 2, inner + raw<uint32_t>(8) + raw<uint64_t>(1) + raw_string("deep"));
  g.tensor("first", {8, 2}, 0, 0).tensor("second.weight", {32, 1, 2, 1}, 8, 64);
  g.bytes(64, 'f').bytes(68, 's');
  return g;
}

TEST(GgufReader, ReadsEveryValueType) {
  for (const uint32_t version : {2u, 3u}) {
    RawGguf raw_file = sample();
    raw_file.version = version;
    const std::string bytes = raw_file.build();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "sample");
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.path(), "sample");
    EXPECT_EQ(file.file_bytes(), bytes.size());
    ASSERT_EQ(file.metadata().size(), 17u);
    EXPECT_EQ(file.metadata()[0].first, "a.u8");
    EXPECT_EQ(std::get<uint8_t>(*file.find("a.u8")), 200);
    EXPECT_EQ(std::get<int8_t>(*file.find("a.i8")), -100);
    EXPECT_EQ(std::get<uint16_t>(*file.find("a.u16")), 60000);
    EXPECT_EQ(std::get<int16_t>(*file.find("a.i16")), -30000);
    EXPECT_EQ(std::get<uint32_t>(*file.find("a.u32")), 4000000000u);
    EXPECT_EQ(std::get<int32_t>(*file.find("a.i32")), -2000000000);
    EXPECT_EQ(std::get<float>(*file.find("a.f32")), 1.5f);
    EXPECT_EQ(std::get<bool>(*file.find("a.bool")), true);
    EXPECT_EQ(std::get<std::string>(*file.find("a.string")), "h\xc3\xa9llo");
    EXPECT_EQ(std::get<uint64_t>(*file.find("a.u64")), 1ull << 60);
    EXPECT_EQ(std::get<int64_t>(*file.find("a.i64")), -(1ll << 60));
    EXPECT_EQ(std::get<double>(*file.find("a.f64")), -0.25);
    EXPECT_EQ(file.find("a.none"), nullptr);
    const auto& nested = std::get<std::shared_ptr<const GgufArray>>(*file.find("a.nested"));
    const auto& inner = std::get<std::vector<std::shared_ptr<const GgufArray>>>(nested->elements);
    ASSERT_EQ(inner.size(), 2u);
    EXPECT_THAT(std::get<std::vector<uint8_t>>(inner[0]->elements), ElementsAre(1, 2));
    EXPECT_THAT(std::get<std::vector<std::string>>(inner[1]->elements), ElementsAre("deep"));
  }
}

TEST(GgufReader, FindsTensorsWhereTheyLie) {
  const std::string bytes = sample().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "sample");
  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorInfo* second = file.find_tensor("second.weight");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->type, TensorType::q8_0);
  EXPECT_EQ(second->n_dims, 4);
  EXPECT_THAT(second->shape, ElementsAre(32, 1, 2, 1));
  EXPECT_EQ(second->bytes, 68u);
  EXPECT_EQ(second->offset, bytes.size() - 68);
  EXPECT_EQ(file.data(*second).size(), 68u);
  EXPECT_EQ(static_cast<const void*>(file.data(*second).data()), bytes.data() + second->offset) << "data is not copied";
  EXPECT_EQ(file.data(*file.find_tensor("first"))[0], std::byte{'f'});
  EXPECT_EQ(file.find_tensor("firs"), nullptr);
  EXPECT_EQ(file.find_tensor("third"), nullptr);
  TensorInfo foreign = *second;
  foreign.bytes = 69;
  EXPECT_THAT(error_of([&] { (void)file.data(foreign); }), HasSubstr("does not belong"));
}

TEST(GgufReader, AcceptsGapsAndOddAlignments) {
  RawGguf g;
  g.kv_u32("general.alignment", 8);
  g.alignment = 8;
  g.tensor("late", {2}, 0, 40).tensor("early", {1}, 0, 8).bytes(48);
  const std::string bytes = g.build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "gaps");
  EXPECT_EQ(file.find_tensor("late")->offset, bytes.size() - 8);
  EXPECT_EQ(file.find_tensor("early")->offset, bytes.size() - 40);
  EXPECT_EQ(file.shards()[0].data_offset, bytes.size() - 48);
}

TEST(GgufReader, AcceptsAFileWithoutTensors) {
  RawGguf g;
  g.kv_u32("general.alignment", 1u << 31).kv_u32("x", 1);
  g.alignment = 1;
  const std::string bytes = g.build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "vocabulary");
  EXPECT_EQ(file.shards()[0].data_offset, bytes.size());
  EXPECT_EQ(file.get_int("x"), 1);
}

TEST(GgufReader, GettersConvertWithinReason) {
  const std::string bytes = sample().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "sample");
  EXPECT_EQ(file.get_int("a.u8"), 200);
  EXPECT_EQ(file.get_int("a.i64"), -(1ll << 60));
  EXPECT_EQ(file.get_float("a.i8"), -100.0);
  EXPECT_EQ(file.get_float("a.f32"), 1.5);
  EXPECT_EQ(file.get_bool("a.bool"), true);
  EXPECT_EQ(file.get_string("a.string"), "h\xc3\xa9llo");
  EXPECT_THAT(*file.get_ints("a.ints"), ElementsAre(7, -8, 9));
  EXPECT_THAT(*file.get_ints("a.bools"), ElementsAre(1, 0));
  EXPECT_THAT(*file.get_ints("a.u16"), ElementsAre(60000));
  EXPECT_THAT(*file.get_floats("a.floats"), ElementsAre(0.5f));
  EXPECT_THAT(*file.get_floats("a.ints"), ElementsAre(7, -8, 9));
  EXPECT_THAT(*file.get_strings("a.strings"), ElementsAre("x", ""));
  EXPECT_EQ(file.get_int("none"), std::nullopt);
  EXPECT_EQ(file.get_ints("none"), std::nullopt);
  EXPECT_EQ(file.get_strings("none"), nullptr);
  EXPECT_EQ(file.need_int("a.i16"), -30000);
  EXPECT_EQ(file.need_float("a.f64"), -0.25);
  EXPECT_EQ(file.need_string("a.string"), "h\xc3\xa9llo");

  EXPECT_THAT(error_of([&] { (void)file.get_int("a.f32"); }),
              HasSubstr("sample: key \"a.f32\" is of type f32, and an integer"));
  EXPECT_THAT(error_of([&] { (void)file.get_int("a.bool"); }), HasSubstr("of type bool, and an integer is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_int("a.ints"); }),
              HasSubstr("is an array of i32, and an integer is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_bool("a.u8"); }), HasSubstr("a bool is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_float("a.string"); }), HasSubstr("a number is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_string("a.u8"); }), HasSubstr("a string is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_ints("a.floats"); }), HasSubstr("array of f32, and integers"));
  EXPECT_THAT(error_of([&] { (void)file.get_floats("a.strings"); }), HasSubstr("array of string, and numbers"));
  EXPECT_THAT(error_of([&] { (void)file.get_strings("a.ints"); }), HasSubstr("an array of strings is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_strings("a.string"); }), HasSubstr("an array of strings is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.need_int("none"); }), HasSubstr("sample: key \"none\" is missing"));
  EXPECT_THAT(error_of([&] { (void)file.need_float("none"); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { (void)file.need_string("none"); }), HasSubstr("missing"));
}

TEST(GgufReader, GettersCheckRangeAndFiniteness) {
  RawGguf g;
  g.kv("big", 10, raw<uint64_t>(1ull << 63)).kv("nan", 6, raw(std::nanf("")));
  g.kv("inf", 12, raw(std::numeric_limits<double>::infinity())).kv_array("bigs", 10, 1, raw<uint64_t>(~0ull));
  const std::string bytes = g.build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "edge");
  EXPECT_THAT(error_of([&] { (void)file.get_int("big"); }), HasSubstr("9223372036854775808, which is too large"));
  EXPECT_THAT(error_of([&] { (void)file.get_ints("bigs"); }), HasSubstr("integers (of 64 bits at most)"));
  EXPECT_THAT(error_of([&] { (void)file.get_float("nan"); }), HasSubstr("a finite number is wanted"));
  EXPECT_THAT(error_of([&] { (void)file.get_float("inf"); }), HasSubstr("a finite number is wanted"));
}

TEST(GgufReader, OverridesChangeWhatGettersAnswer) {
  const std::string bytes = sample().build();
  GgufFile file = GgufFile::parse(as_bytes(bytes), "sample");
  file.override_metadata("a.u8=int:-3");
  file.override_metadata("a.f32=float:2.5e-1");
  file.override_metadata("a.bool=bool:false");
  file.override_metadata("a.new=str:x=y:z");
  file.override_metadata("a.ints=int:5");
  EXPECT_EQ(file.get_int("a.u8"), -3);
  EXPECT_EQ(file.get_float("a.f32"), 0.25);
  EXPECT_EQ(file.get_bool("a.bool"), false);
  EXPECT_EQ(file.get_string("a.new"), "x=y:z");
  EXPECT_THAT(*file.get_ints("a.ints"), ElementsAre(5));
  file.override_metadata("a.u8=int:4");
  EXPECT_EQ(file.get_int("a.u8"), 4);
  EXPECT_EQ(std::get<uint8_t>(file.metadata()[0].second), 200) << "the file's own metadata stays";
  for (const char* bad : {"", "a", "a=int", "=int:1", "a=int:", "a=int:1x", "a=int: 1", "a=int:99999999999999999999",
                          "a=bool:1", "a=float:nan", "a=float:inf", "a=float:x", "a=double:1", "a:int=1"}) {
    try {
      file.override_metadata(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << bad;
      EXPECT_THAT(error.what(), HasSubstr("is not KEY=TYPE:VALUE")) << bad;
    }
  }
}

TEST(GgufReader, ParsesALargeVocabularyQuickly) {
  constexpr uint64_t kTokens = 150000;
  std::string tokens;
  for (uint64_t i = 0; i < kTokens; ++i) tokens += raw_string("token" + std::to_string(i));
  RawGguf g;
  g.kv_array("tokens", 8, kTokens, tokens).kv_array("merges", 8, kTokens, tokens);
  const std::string bytes = g.build();
  const auto start = std::chrono::steady_clock::now();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "vocabulary");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_EQ(file.get_strings("tokens")->size(), kTokens);
  EXPECT_EQ(file.get_strings("merges")->back(), "token149999");
  EXPECT_LT(seconds, 1.0);  // about 0.02 s; the rest is for sanitizers and busy machines
}

TEST(GgufReader, OpensFilesFromTheOutside) {
  const char* shared = std::getenv("MOETIER_SHARED");
  const std::filesystem::path root = shared != nullptr ? shared : MOETIER_SOURCE_DIR "/../shared";
  const auto model = root / "oracle/models/qwen3moe-q4_k_m.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "the shared folder with reference models is not there";
  const GgufFile file = GgufFile::open(model.string());
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.need_string("general.architecture"), "qwen3moe");
  const TensorInfo* down = file.find_tensor("blk.0.ffn_down_exps.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape[2], file.need_int("qwen3moe.expert_count"));
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 512u);
}

}  // namespace
}  // namespace moetier
