#include "io/advice.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "io/page_cache.h"
#include "io/temp_files.h"
#include "support/allocations.h"

namespace moetier {
namespace {

using testing_support::TempFiles;

const auto kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

/// A file of `pages` pages, mapped and out of memory.
class ColdMapping {
 public:
  explicit ColdMapping(uint64_t pages) : bytes_(pages * kPage) {
    const std::string path = files_.make("mapped", bytes_, 1);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    data_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
  }
  ~ColdMapping() { munmap(data_, bytes_); }
  ColdMapping(const ColdMapping&) = delete;
  ColdMapping& operator=(const ColdMapping&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool cold() const { return bytes_in_memory(data_, bytes_) == 0; }

 private:
  TempFiles files_;
  uint64_t bytes_;
  std::byte* data_;
};

TEST(AdviseWillneed, AsksForEveryPageThatIsTouchedAndSplits) {
  const ColdMapping map(64);
  struct Want {
    uint64_t begin, bytes, limit, calls, pages;
  };
  const Want wants[] = {
      {0, 0, 0, 0, 0},
      {0, 1, 0, 1, 1},
      {kPage - 1, 2, 0, 1, 2},
      {kPage, kPage, kPage, 1, 1},
      {100, 8 * kPage, 0, 1, 9},
      {100, 8 * kPage, 4 * kPage, 3, 9},
      {100, 8 * kPage, 4 * kPage + 5, 3, 9},
      {0, 8 * kPage, 1, 8, 8},
      {0, 8 * kPage, ~uint64_t{0}, 1, 8},
  };
  for (const Want& want : wants) {
    const Advice advice = advise_willneed(map.data() + want.begin, want.bytes, want.limit);
    EXPECT_EQ(advice.calls, want.calls) << want.begin << " " << want.bytes << " " << want.limit;
    EXPECT_EQ(advice.bytes, want.pages * kPage);
    EXPECT_EQ(advice.failures, 0u) << advice.reason();
  }
}

TEST(AdviseWillneed, BringsExactlyWhatWasAskedFor) {
  const ColdMapping map(1024);
  if (!map.cold()) GTEST_SKIP() << "this file system keeps files in memory or does not tell what is there";
  advise_random(map.data(), map.bytes());
  advise_willneed(map.data() + 100 * kPage, 300 * kPage, 16 * kPage);
  const auto wanted = [&] { return bytes_in_memory(map.data() + 100 * kPage, 300 * kPage); };
  for (int i = 0; i < 400 && wanted() < 300 * kPage; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(wanted(), 300 * kPage);
  // Larger pages of the cache may reach a little beyond.
  EXPECT_LE(bytes_in_memory(map.data(), map.bytes()), 512 * kPage);
}

TEST(AdviseWillneed, CountsFailures) {
  void* const nothing = mmap(nullptr, 4 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  munmap(nothing, 4 * kPage);
  const Advice advice = advise_willneed(static_cast<const std::byte*>(nothing), 4 * kPage, kPage);
  EXPECT_EQ(advice.calls, 4u);
  EXPECT_EQ(advice.failures, 4u);
  EXPECT_EQ(advice.error, ENOMEM);
  EXPECT_EQ(advice.reason(), std::strerror(ENOMEM));
}

TEST(AdviseWillneed, AllocatesNothing) {
  const ColdMapping map(64);
  advise_willneed(map.data(), 1, 0);
  const int64_t before = testing_support::allocations();
  advise_willneed(map.data() + 5, 40 * kPage, 3 * kPage);
  EXPECT_EQ(testing_support::allocations(), before);
}

TEST(AdviseRandom, TakesOnlyWholePages) {
  const ColdMapping map(16);
  EXPECT_EQ(advise_random(map.data(), kPage - 1).calls, 0u);
  EXPECT_EQ(advise_random(map.data() + 1, kPage + 5).calls, 0u);
  EXPECT_EQ(advise_random(map.data() + 1, 0).calls, 0u);
  const Advice advice = advise_random(map.data() + 1, 3 * kPage);
  EXPECT_EQ(advice.calls, 1u);
  EXPECT_EQ(advice.bytes, 2 * kPage);
  EXPECT_EQ(advice.failures, 0u);
}

TEST(AdviseRandom, AFaultReadsItsOwnPage) {
  const ColdMapping map(256);
  if (!map.cold()) GTEST_SKIP() << "this file system keeps files in memory or does not tell what is there";
  advise_random(map.data(), map.bytes());
  static_cast<void>(static_cast<const volatile std::byte*>(map.data())[100 * kPage]);
  EXPECT_GE(bytes_in_memory(map.data(), map.bytes()), kPage);
  EXPECT_LE(bytes_in_memory(map.data(), map.bytes()), 16 * kPage);
}

TEST(PageCache, CountsBytesAtBothEnds) {
  void* const memory = mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto* const begin = static_cast<const std::byte*>(memory);
  EXPECT_EQ(bytes_in_memory(begin, 4 * kPage), 0u);
  std::memset(memory, 1, 2 * kPage);
  EXPECT_EQ(bytes_in_memory(begin, 4 * kPage), 2 * kPage);
  EXPECT_EQ(bytes_in_memory(begin + 10, kPage), kPage);
  EXPECT_EQ(bytes_in_memory(begin + 2 * kPage - 7, kPage), 7u);
  EXPECT_EQ(bytes_in_memory(begin, 0), 0u);
  munmap(memory, 4 * kPage);
}

TEST(PageCache, TellsWhatItHas) {
  TempFiles files;
  const uint64_t bytes = 32 * kPage;
  const std::string path = files.make("view", bytes, 1);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  fsync(fd);
  auto* const data = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0));
  const PageCacheView view(path, {data, bytes});
  std::vector<char> scratch(bytes);
  ASSERT_EQ(pread(fd, scratch.data(), bytes, 0), static_cast<ssize_t>(bytes));
  EXPECT_TRUE(view.holds(0, bytes));
  EXPECT_TRUE(view.holds(kPage + 5, 100));
  EXPECT_FALSE(view.holds(0, 0));
  EXPECT_FALSE(view.holds(1, bytes));
  EXPECT_FALSE(view.holds(~uint64_t{0}, 2));
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (bytes_in_memory(data, bytes) == 0) {  // some file systems are memory
    EXPECT_EQ(view.cached(0, bytes), 0u);
  }
  EXPECT_FALSE(PageCacheView(path + ".none", {data, bytes}).holds(0, bytes));
  advise_map(data + 10, 3 * kPage);
  EXPECT_EQ(data[kPage], static_cast<std::byte>(scratch[kPage]));
  munmap(data, bytes);
  close(fd);
}

}  // namespace
}  // namespace moetier
