#include "gguf/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"

namespace moetier {
namespace {

using test::raw;
using test::raw_string;
using test::RawGguf;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  return test::message_of<Error>(action);
}

std::vector<std::byte> filled(size_t n, uint8_t value) {
  return std::vector<std::byte>(n, std::byte{value});
}

TEST(GgufWriter, WritesTheBytesTheFormatAsksFor) {
  const TempDir dir;
  GgufWriter writer;
  writer.set("name", std::string("tiny"));
  writer.set("n", uint32_t{1});
  writer.set("on", true);
  writer.set_ints("ints", {1, -2});
  writer.set("n", uint32_t{9});  // replaced in its place
  writer.add_tensor("a", TensorType::f32, {3}, filled(12, 'a'));
  writer.add_tensor("b", TensorType::q8_0, {32, 2}, filled(68, 'b'));
  writer.write(dir / "out.gguf");

  RawGguf g;
  g.kv("name", 8, raw_string("tiny")).kv_u32("n", 9).kv("on", 7, raw<uint8_t>(1));
  g.kv_array("ints", 5, 2, raw(1) + raw(-2));
  g.tensor("a", {3}, 0, 0).tensor("b", {32, 2}, 8, 32);
  g.bytes(12, 'a').bytes(20).bytes(68, 'b').bytes(28);
  EXPECT_EQ(read_file(dir / "out.gguf"), g.build());
  EXPECT_EQ(writer.file_bytes(), g.build().size());
}

TEST(GgufWriter, EveryValueSurvivesTheRoundTrip) {
  const TempDir dir;
  const auto array = [](GgufType type, auto elements) {
    auto made = std::make_shared<GgufArray>();
    made->element_type = type;
    made->elements = std::move(elements);
    return std::shared_ptr<const GgufArray>(std::move(made));
  };
  const auto strings = array(GgufType::string, std::vector<std::string>{"x", "", std::string("\0y", 2)});
  const auto bools = array(GgufType::boolean, std::vector<bool>{true, false, true});
  std::vector<std::pair<std::string, GgufValue>> values{
      {"u8", uint8_t{255}},
      {"i8", int8_t{-128}},
      {"u16", uint16_t{65535}},
      {"i16", int16_t{-32768}},
      {"u32", uint32_t{4294967295}},
      {"i32", INT32_MIN},
      {"f32", 0.1f},
      {"bool", false},
      {"string", std::string("s")},
      {"u64", UINT64_MAX},
      {"i64", INT64_MIN},
      {"f64", 0.1},
      {"strings", strings},
      {"bools", bools},
      {"doubles", array(GgufType::f64, std::vector<double>{1e300})},
      {"nested", array(GgufType::array, std::vector<std::shared_ptr<const GgufArray>>{strings, bools})}};
  GgufWriter writer(64);
  for (const auto& [key, value] : values) writer.set(key, value);
  writer.write(dir / "out.gguf");

  const GgufFile file = GgufFile::open(dir / "out.gguf");
  ASSERT_EQ(file.metadata().size(), values.size() + 1);
  EXPECT_EQ(file.metadata().back().first, "general.alignment");
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [key, value] = file.metadata()[i];
    EXPECT_EQ(key, values[i].first);
    ASSERT_EQ(value.index(), values[i].second.index()) << key;
    if (gguf_type(value) == GgufType::array) {
      const auto& read = std::get<std::shared_ptr<const GgufArray>>(value);
      const auto& wrote = std::get<std::shared_ptr<const GgufArray>>(values[i].second);
      EXPECT_EQ(read->element_type, wrote->element_type) << key;
      EXPECT_TRUE(key == "nested" || read->elements == wrote->elements) << key;
    } else {
      EXPECT_EQ(value, values[i].second) << key;
    }
  }
  const auto& nested = std::get<std::shared_ptr<const GgufArray>>(*file.find("nested"));
  const auto& inner = std::get<std::vector<std::shared_ptr<const GgufArray>>>(nested->elements);
  ASSERT_EQ(inner.size(), 2u);
  EXPECT_EQ(inner[0]->elements, strings->elements);
  EXPECT_EQ(inner[1]->elements, bools->elements);
}

TEST(GgufWriter, StreamsTensorsInPiecesAndReportsProgress) {
  const TempDir dir;
  GgufWriter writer;
  writer.add_tensor("t", TensorType::f32, {8}, [](const GgufWriter::Sink& sink) {
    const float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    sink(numbers, 4);
    sink(numbers + 1, 28);
  });
  writer.add_tensor("u", TensorType::f32, {1}, filled(4, 0));
  std::vector<uint64_t> steps;
  writer.write(dir / "out.gguf", [&](uint64_t done, uint64_t total) {
    steps.push_back(done);
    EXPECT_EQ(total, 36u);
  });
  EXPECT_THAT(steps, ElementsAre(4, 32, 36));
  const GgufFile file = GgufFile::open(dir / "out.gguf");
  float seventh = 0;
  std::memcpy(&seventh, file.data(*file.find_tensor("t")).data() + 28, 4);
  EXPECT_EQ(seventh, 7.0f);
}

TEST(GgufWriter, AlignmentIsAKeyAndKeepsToIt) {
  const TempDir dir;
  GgufWriter writer;
  writer.set("general.alignment", uint32_t{4096});
  writer.set("split.count", uint16_t{3});  // left out: the file is whole
  writer.add_tensor("a", TensorType::f32, {1}, filled(4, 1));
  writer.add_tensor("b", TensorType::f32, {1}, filled(4, 2));
  writer.write(dir / "out.gguf");
  const GgufFile file = GgufFile::open(dir / "out.gguf");
  EXPECT_EQ(file.get_int("general.alignment"), 4096);
  EXPECT_EQ(file.find("split.count"), nullptr);
  EXPECT_EQ(file.find_tensor("a")->offset, 4096u);
  EXPECT_EQ(file.find_tensor("b")->offset, 8192u);
  EXPECT_EQ(file.data(*file.find_tensor("b"))[0], std::byte{2});
}

TEST(GgufWriter, RefusesWhatNoReaderWouldTake) {
  GgufWriter writer;
  const auto add = [&](const std::string& name, TensorType type, std::vector<int64_t> shape, size_t bytes) {
    return error_of([&] { writer.add_tensor(name, type, std::move(shape), filled(bytes, 0)); });
  };
  EXPECT_EQ(add("good", TensorType::f32, {1}, 4), "");
  EXPECT_THAT(add("good", TensorType::f32, {1}, 4), HasSubstr("\"good\" twice"));
  EXPECT_THAT(add("", TensorType::f32, {1}, 4), HasSubstr("a name has 1 to 63 bytes"));
  EXPECT_THAT(add(std::string(64, 'n'), TensorType::f32, {1}, 4), HasSubstr("a name has 1 to 63 bytes"));
  EXPECT_THAT(add("t", TensorType::f32, {}, 4), HasSubstr("0 dimensions"));
  EXPECT_THAT(add("t", TensorType::f32, {1, 1, 1, 1, 1}, 4), HasSubstr("5 dimensions"));
  EXPECT_THAT(add("t", TensorType::f32, {4, 0}, 0), HasSubstr("shape (4, 0)"));
  EXPECT_THAT(add("t", TensorType::f32, {int64_t{1} << 32, int64_t{1} << 32}, 0),
              HasSubstr("that this machine can count"));
  EXPECT_THAT(add("t", TensorType::f64, {int64_t{1} << 62}, 0), HasSubstr("more bytes than this machine can count"));
  EXPECT_THAT(add("t", TensorType::q4_0, {31}, 18), HasSubstr("its row length 31 is not a multiple of 32"));
  EXPECT_THAT(add("t", TensorType::q4_0, {32}, 17), HasSubstr("wants 18 bytes, and 17 were given"));
  EXPECT_THAT(error_of([&] { writer.set("", uint8_t{1}); }), HasSubstr("key of 0 bytes"));
  EXPECT_THAT(error_of([&] { writer.set("general.alignment", uint64_t{32}); }), HasSubstr("must be a u32"));
  EXPECT_THAT(error_of([] { GgufWriter bad(48); }), HasSubstr("power of two"));
}

TEST(GgufWriter, ProducersMustGiveExactlyTheTensor) {
  const TempDir dir;
  const std::string path = dir / "out.gguf";
  for (const size_t given : {0u, 12u, 20u}) {
    GgufWriter writer;
    writer.add_tensor("t", TensorType::f32, {4}, [given](const GgufWriter::Sink& sink) {
      const char zeros[32] = {};
      sink(zeros, given);
    });
    EXPECT_THAT(error_of([&] { writer.write(path); }),
                HasSubstr(given > 16 ? "more than its 16 bytes" : "of its 16 bytes"));
    EXPECT_FALSE(std::filesystem::exists(path)) << "nothing half-written stays";
    EXPECT_TRUE(std::filesystem::is_empty(dir / ""));
  }
}

TEST(GgufWriter, SaysBeforehandThatTheDiskIsTooSmall) {
  const TempDir dir;
  GgufWriter writer;
  writer.add_tensor("t", TensorType::f32, {int64_t{1} << 58},
                    [](const GgufWriter::Sink&) { FAIL() << "must not be asked"; });
  EXPECT_THAT(error_of([&] { writer.write(dir / "out.gguf"); }), HasSubstr("its file system has"));
}

}  // namespace
}  // namespace moetier
