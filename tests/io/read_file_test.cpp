#include "io/read_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/direct_check.h"
#include "io/temp_files.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::BlockMemory;
using testing_support::bytes_at;
using testing_support::error_of;
using testing_support::TempFiles;

TEST(ReadFile, OpensForDirectReadsOrSaysWhyNot) {
  const TempFiles files;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{4097},
                               uint64_t{3 * 4096}, uint64_t{100'000}}) {
    const std::string path = files.make("model", bytes, bytes + 1);
    const ReadFile file(path, true);
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(file.bytes(), bytes);
    EXPECT_EQ(file.direct(), file.why_buffered().empty()) << file.why_buffered();
    EXPECT_EQ((fcntl(file.fd(), F_GETFL) & O_DIRECT) != 0, file.direct());
    EXPECT_EQ(fcntl(file.fd(), F_GETFL) & O_NONBLOCK, 0);
    BlockMemory to(bytes + 1);
    EXPECT_EQ(pread(file.fd(), to.data(), to.span().size(), 0), static_cast<ssize_t>(bytes));
    const auto expected = bytes_at(path, 0, bytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.data()));
  }
}

TEST(ReadFile, ReadsThroughTheCacheWhereThatIsAsked) {
  const TempFiles files;
  const ReadFile file(files.make("model", 5000, 1), false);
  EXPECT_FALSE(file.direct());
  EXPECT_THAT(file.why_buffered(), IsEmpty());
  EXPECT_EQ(fcntl(file.fd(), F_GETFL) & O_DIRECT, 0);
}

TEST(ReadFile, RefusesWhatIsNoRegularFile) {
  const TempFiles files;
  EXPECT_THAT(error_of([&] { ReadFile(files.name("absent"), true); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { ReadFile(files.path().string(), true); }), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo(files.name("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { ReadFile(files.name("pipe"), true); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { ReadFile("/dev/null", true); }), HasSubstr("not a regular file"));
}

TEST(ReadFile, KeepsTheFileThatWasOpened) {
  const TempFiles files;
  const std::string path = files.make("model", 8192, 1);
  const auto old = bytes_at(path, 0, 8192);
  ReadFile first(path, true);
  const ReadFile file(std::move(first));
  ASSERT_EQ(std::rename(files.make("other", 8192, 2).c_str(), path.c_str()), 0);
  BlockMemory to(8192);
  ASSERT_EQ(pread(file.fd(), to.data(), 8192, 0), 8192);
  EXPECT_TRUE(std::equal(old.begin(), old.end(), to.data()));
  EXPECT_NE(bytes_at(path, 0, 8192), old);
}

TEST(ReadFile, DropsFromThePageCacheWithoutHarm) {
  const TempFiles files;
  const std::string path = files.make("model", 1 << 20, 1);
  const auto before = bytes_at(path, 0, 1 << 20);
  const ReadFile file(path, false);
  file.drop_from_page_cache(4096, 8192);
  file.drop_from_page_cache(0, 0);
  file.drop_from_page_cache(~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(bytes_at(path, 0, 1 << 20), before);
}

// File systems that answer wrongly are not at hand: their answers are made up.
class CompareReads : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 3 * kReadBlock + 100;

  static int64_t right(uint64_t offset, std::byte* to) {
    const uint64_t n = std::min(kReadBlock, kBytes - offset);
    for (uint64_t i = 0; i < n; ++i) to[i] = static_cast<std::byte>((offset + i) * 7 >> 3);
    return static_cast<int64_t>(n);
  }
};

TEST_F(CompareReads, EqualReadsHaveNothingToSay) {
  EXPECT_THAT(compare_reads(kBytes, right, right), IsEmpty());
  EXPECT_THAT(compare_reads(0, right, right), IsEmpty());
}

TEST_F(CompareReads, OneOtherByteInAnyComparedBlockIsSeen) {
  for (const uint64_t at : {uint64_t{0}, kReadBlock - 1, 2 * kReadBlock + 5, kBytes - 1}) {
    const auto wrong = [&](uint64_t offset, std::byte* to) {
      const int64_t n = right(offset, to);
      if (at >= offset && at - offset < static_cast<uint64_t>(n)) to[at - offset] ^= std::byte{1};
      return n;
    };
    EXPECT_THAT(compare_reads(kBytes, right, wrong), HasSubstr("other bytes")) << at;
  }
}

TEST_F(CompareReads, ErrorsAndShortReadsAreSeen) {
  const auto refused = [](uint64_t, std::byte*) { return int64_t{-EINVAL}; };
  EXPECT_THAT(compare_reads(kBytes, right, refused), HasSubstr("Invalid argument"));
  const auto tail_refused = [](uint64_t offset, std::byte* to) {
    return offset == 3 * kReadBlock ? int64_t{-EIO} : right(offset, to);
  };
  EXPECT_THAT(compare_reads(kBytes, right, tail_refused), HasSubstr("byte 12288"));
  const auto cut = [](uint64_t offset, std::byte* to) { return right(offset, to) - 1; };
  EXPECT_THAT(compare_reads(kBytes, right, cut), HasSubstr("4095 bytes instead of 4096"));
}

}  // namespace
}  // namespace moetier
