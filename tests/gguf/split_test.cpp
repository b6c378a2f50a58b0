#include "gguf/split.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;
using test::raw;
using test::RawGguf;
using test::TempDir;
using ::testing::HasSubstr;

std::string open_error(const std::string& path) {
  return test::message_of<Error>([&] { (void)GgufFile::open(path); });
}

TEST(SplitName, IsReadAndWritten) {
  const auto name = parse_split_name("/models/big-00002-of-00012.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/models/big");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 12);
  EXPECT_EQ(split_path(name->prefix, 3, 12), "/models/big-00003-of-00012.gguf");
  for (const char* other :
       {"", "x.gguf", "x-0001-of-0002.gguf", "x-00003-of-00002.gguf", "x-00000-of-00002.gguf", "x-00001-of-00000.gguf",
        "x-00001-of-00002", "x-00001-of-00002.GGUF", "x-0000a-of-00002.gguf", "x00001-of-00002.gguf", "-of-00002.gguf",
        "x-00001-of-+0002.gguf"}) {
    EXPECT_FALSE(parse_split_name(other)) << other;
  }
}

/// Five tensors, number i being i + 1 floats of value i.
GgufWriter five() {
  GgufWriter writer;
  writer.set("general.architecture", std::string("test"));
  for (int i = 0; i < 5; ++i) {
    const auto n = static_cast<size_t>(i + 1);
    std::vector<std::byte> data(n * 4);
    for (size_t k = 0; k < n; ++k) {
      const auto value = static_cast<float>(i);
      std::memcpy(data.data() + 4 * k, &value, 4);
    }
    writer.add_tensor(fmt::format("t{}", i), TensorType::f32, {i + 1}, std::move(data));
  }
  return writer;
}

TEST(SplitSet, OpensFromAnyShard) {
  for (const int n_shards : {1, 2, 3, 5, 7}) {
    const TempDir dir;
    uint64_t last_done = 0;
    five().write_split(dir / "m", n_shards, [&](uint64_t done, uint64_t total) {
      EXPECT_EQ(total, 60u);
      EXPECT_GT(done, last_done);
      last_done = done;
    });
    EXPECT_EQ(last_done, 60u);
    for (int shard = 1; shard <= n_shards; ++shard) {
      const GgufFile file = GgufFile::open(split_path(dir / "m", shard, n_shards));
      ASSERT_EQ(file.shards().size(), static_cast<size_t>(n_shards));
      ASSERT_EQ(file.tensors().size(), 5u);
      EXPECT_EQ(file.need_string("general.architecture"), "test") << "metadata is the first shard's";
      uint64_t bytes = 0;
      for (const auto& s : file.shards()) bytes += fs::file_size(s.path);
      EXPECT_EQ(file.file_bytes(), bytes);
      for (int i = 0; i < 5; ++i) {
        const TensorInfo* tensor = file.find_tensor(fmt::format("t{}", i));
        ASSERT_NE(tensor, nullptr);
        const auto data = file.data(*tensor);
        ASSERT_EQ(data.size(), 4u * static_cast<size_t>(i + 1));
        float value = -1;
        std::memcpy(&value, data.data() + data.size() - 4, 4);
        EXPECT_EQ(value, static_cast<float>(i));
      }
    }
  }
}

TEST(SplitSet, SharesBytesOutEvenly) {
  const TempDir dir;
  five().write_split(dir / "m", 2);
  const GgufFile file = GgufFile::open(dir / "m-00001-of-00002.gguf");
  EXPECT_EQ(file.find_tensor("t3")->shard, 0);
  EXPECT_EQ(file.find_tensor("t4")->shard, 1);
}

TEST(SplitSet, AlignmentHoldsInEveryShard) {
  const TempDir dir;
  GgufWriter writer = five();
  writer.set("general.alignment", uint32_t{256});
  writer.write_split(dir / "m", 3);
  const GgufFile file = GgufFile::open(dir / "m-00002-of-00003.gguf");
  for (const TensorInfo& tensor : file.tensors()) EXPECT_EQ(tensor.offset % 256, 0u) << tensor.name;
}

TEST(SplitSet, LinksWithTheRightNamesAreFine) {
  const TempDir dir;
  five().write_split(dir / "m", 2);
  fs::create_directory(dir / "blobs");
  for (const int i : {1, 2}) {
    const std::string blob = dir / fmt::format("blobs/{}", i);
    fs::rename(split_path(dir / "m", i, 2), blob);
    fs::create_symlink(blob, split_path(dir / "m", i, 2));
  }
  EXPECT_EQ(GgufFile::open(dir / "m-00002-of-00002.gguf").tensors().size(), 5u);
  EXPECT_THAT(open_error(dir / "blobs/2"), HasSubstr("its name must end in -00002-of-00002.gguf"));
}

TEST(SplitSet, AWholeFileMayHaveAnyName) {
  const TempDir dir;
  five().write(dir / "m-00001-of-00003.gguf");
  EXPECT_EQ(GgufFile::open(dir / "m-00001-of-00003.gguf").tensors().size(), 5u);
  EXPECT_THAT(log::warnings().back(), HasSubstr("named like shard 1 of 3, but has no key split.count"));
}

/// Writes shard `number` of `count` (by name) with the given keys and tensors; a negative key is left out.
void shard(const TempDir& dir, int number, int count, int split_no, int split_count, int tensors_count,
           const std::vector<std::string>& tensors) {
  RawGguf g;
  if (split_no >= 0) g.kv("split.no", 2, raw(static_cast<uint16_t>(split_no)));
  if (split_count >= 0) g.kv("split.count", 2, raw(static_cast<uint16_t>(split_count)));
  if (tensors_count >= 0) g.kv("split.tensors.count", 5, raw(tensors_count));
  uint64_t offset = 0;
  for (const std::string& name : tensors) {
    g.tensor(name, {8}, 0, offset).bytes(32);
    offset += 32;
  }
  test::write_bytes(split_path(dir / "m", number, count), g.build());
}

TEST(SplitSet, GoodByHand) {
  const TempDir dir;
  shard(dir, 1, 2, 0, 2, 3, {"a", "b"});
  shard(dir, 2, 2, 1, 2, 3, {"c"});
  EXPECT_EQ(GgufFile::open(dir / "m-00002-of-00002.gguf").tensors().size(), 3u);
}

TEST(SplitSet, MissingShard) {
  const TempDir dir;
  shard(dir, 1, 3, 0, 3, 3, {"a"});
  shard(dir, 3, 3, 2, 3, 3, {"c"});
  const std::string error = open_error(dir / "m-00003-of-00003.gguf");
  EXPECT_THAT(error, HasSubstr("shard 2 of 3 is missing"));
  EXPECT_THAT(error, HasSubstr("m-00002-of-00003.gguf"));
}

TEST(SplitSet, WrongNumber) {
  const TempDir dir;
  shard(dir, 1, 2, 0, 2, 2, {"a"});
  shard(dir, 2, 2, 5, 2, 2, {"b"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"),
              HasSubstr("00002-of-00002.gguf: the name says shard 2, but key split.no says 5"));
  EXPECT_THAT(open_error(dir / "m-00002-of-00002.gguf"), HasSubstr("the name says shard 2, but key split.no says 5"));
  shard(dir, 2, 2, -1, 2, 2, {"b"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"), HasSubstr("split.no is missing, so the file is no shard"));
  EXPECT_THAT(open_error(dir / "m-00002-of-00002.gguf"), HasSubstr("key split.no is missing"));
}

TEST(SplitSet, CopiedShard) {
  const TempDir dir;
  shard(dir, 1, 2, 0, 2, 2, {"a"});
  fs::copy_file(dir / "m-00001-of-00002.gguf", dir / "m-00002-of-00002.gguf");
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"), HasSubstr("the name says shard 2, but key split.no says 0"));
}

TEST(SplitSet, InconsistentCounts) {
  const TempDir dir;
  shard(dir, 1, 2, 0, 3, 2, {"a"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"),
              HasSubstr("the name says 2 shards, but key split.count says 3"));
  shard(dir, 1, 2, 0, 2, 2, {"a"});
  shard(dir, 2, 2, 1, 4, 2, {"b"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"),
              HasSubstr("split.count says 4 shards, but another shard of the set says 2"));
  shard(dir, 2, 2, 1, 2, 9, {"b"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"),
              HasSubstr("split.tensors.count says 9, but another shard of the set says 2"));
  shard(dir, 1, 2, 0, 2, 7, {"a"});
  shard(dir, 2, 2, 1, 2, 7, {"b"});
  EXPECT_THAT(open_error(dir / "m-00001-of-00002.gguf"),
              HasSubstr("the 2 shards hold 2 tensors, but key split.tensors.count says 7"));
}

TEST(SplitSet, KeysOfTheWrongKind) {
  const TempDir dir;
  RawGguf g;
  g.kv("split.count", 8, test::raw_string("2"));
  test::write_bytes(dir / "a.gguf", g.build());
  EXPECT_THAT(open_error(dir / "a.gguf"), HasSubstr("key split.count must be an integer from 0 to 65535"));
  RawGguf h;
  h.kv("split.no", 11, raw(INT64_MAX)).kv("split.count", 11, raw(int64_t{2}));
  test::write_bytes(dir / "a.gguf", h.build());
  EXPECT_THAT(open_error(dir / "a.gguf"), HasSubstr("key split.no must be an integer from 0 to 65535"));
}

TEST(SplitSet, CyclicSets) {
  const TempDir dir;
  shard(dir, 1, 3, 0, 3, 3, {"a"});
  shard(dir, 3, 3, 2, 3, 3, {"c"});
  fs::create_symlink("m-00001-of-00003.gguf", dir / "m-00002-of-00003.gguf");
  EXPECT_THAT(open_error(dir / "m-00001-of-00003.gguf"),
              HasSubstr("shards 1 and 2 are one and the same file (a link)"));
  fs::remove(dir / "m-00002-of-00003.gguf");
  fs::create_hard_link(dir / "m-00001-of-00003.gguf", dir / "m-00002-of-00003.gguf");
  EXPECT_THAT(open_error(dir / "m-00003-of-00003.gguf"),
              HasSubstr("shards 1 and 2 are one and the same file (a link)"));
  fs::remove(dir / "m-00002-of-00003.gguf");
  fs::create_symlink("m-00002-of-00003.gguf", dir / "m-00002-of-00003.gguf");
  EXPECT_THAT(open_error(dir / "m-00001-of-00003.gguf"), HasSubstr("symbolic links"));
}

TEST(SplitSet, TensorInTwoShards) {
  const TempDir dir;
  shard(dir, 1, 2, 0, 2, 3, {"a", "b"});
  shard(dir, 2, 2, 1, 2, 3, {"b"});
  EXPECT_THAT(
      open_error(dir / "m-00001-of-00002.gguf"),
      ::testing::AllOf(HasSubstr("00002-of-00002.gguf: tensor \"b\" is in "), HasSubstr("00001-of-00002.gguf, too")));
}

TEST(SplitSet, DamageInAnyShardIsFound) {
  const TempDir dir;
  five().write_split(dir / "m", 3);
  fs::resize_file(dir / "m-00003-of-00003.gguf", 60);
  EXPECT_THAT(open_error(dir / "m-00001-of-00003.gguf"), HasSubstr("00003-of-00003.gguf: "));
}

TEST(SplitSet, ShardCountsOutOfRangeAreRefused) {
  const TempDir dir;
  for (const int n : {0, -1, 65536}) {
    EXPECT_THAT(test::message_of<Error>([&] { five().write_split(dir / "m", n); }), HasSubstr("1 to 65535"));
  }
}

}  // namespace
}  // namespace moetier
