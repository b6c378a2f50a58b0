#include "io/mapped_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace moetier {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

/// A file of ones without a name, mapped.
class MappedOnes {
 public:
  explicit MappedOnes(size_t bytes) : bytes_(bytes) {
    std::string path = testing::TempDir() + "mapped_faults_XXXXXX";
    fd_ = mkstemp(path.data());
    unlink(path.c_str());
    const std::string ones(bytes, '\1');
    if (write(fd_, ones.data(), bytes) != static_cast<ssize_t>(bytes)) std::abort();
    at_ = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (at_ == MAP_FAILED) std::abort();
  }
  ~MappedOnes() {
    munmap(at_, bytes_);
    close(fd_);
  }
  MappedOnes(const MappedOnes&) = delete;
  MappedOnes& operator=(const MappedOnes&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(at_), bytes_}; }
  int read(size_t offset) const { return static_cast<const volatile unsigned char*>(at_)[offset]; }
  void cut(size_t left) const { ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(left)), 0); }

 private:
  size_t bytes_;
  int fd_;
  void* at_;
};

TEST(MappedFaults, AFileCutShortReadsAsZerosAndIsDamaged) {
  const MappedOnes cut(3 * kPage + 100), whole(2 * kPage);
  const MappedFaults watched(cut.bytes()), other(whole.bytes());
  EXPECT_EQ(cut.read(3 * kPage + 99), 1);
  EXPECT_FALSE(watched.damaged());
  cut.cut(kPage);
  EXPECT_EQ(cut.read(0), 1) << "what the file still has is no fault";
  EXPECT_FALSE(watched.damaged());
  EXPECT_EQ(cut.read(3 * kPage + 99), 0);
  EXPECT_TRUE(watched.damaged());
  EXPECT_EQ(cut.read(kPage), 0);
  EXPECT_FALSE(other.damaged());
  EXPECT_EQ(whole.read(kPage), 1);
}

TEST(MappedFaults, ManyThreadsMayFaultAtOnce) {
  const MappedOnes file(64 * kPage);
  const MappedFaults watched(file.bytes());
  file.cut(0);
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t p = t; p < 64; p += 8) sum += file.read(p * kPage);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 0);
  EXPECT_TRUE(watched.damaged());
}

TEST(MappedFaults, ASlotUsedAgainIsNotDamaged) {
  const MappedOnes cut(kPage), whole(kPage);
  {
    const MappedFaults watched(cut.bytes());
    cut.cut(0);
    EXPECT_EQ(cut.read(0), 0);
    EXPECT_TRUE(watched.damaged());
  }
  MappedFaults next(whole.bytes());
  const MappedFaults moved(std::move(next));
  EXPECT_FALSE(moved.damaged());
  whole.cut(0);
  EXPECT_EQ(whole.read(0), 0);
  EXPECT_TRUE(moved.damaged());
}

TEST(MappedFaults, AnEmptyMappingIsNeverDamaged) {
  const MappedFaults watched({});
  EXPECT_FALSE(watched.damaged());
}

TEST(MappedFaults, RefusesHalfPagesAndMoreThanItHolds) {
  const MappedOnes file(2 * kPage);
  EXPECT_THROW(MappedFaults(file.bytes().subspan(1)), Error);
  std::vector<MappedFaults> watched;
  watched.reserve(MappedFaults::kMost);
  for (size_t i = 0; i < MappedFaults::kMost; ++i) watched.emplace_back(file.bytes());
  EXPECT_THROW(MappedFaults(file.bytes()), Error);
  watched.pop_back();
  EXPECT_NO_THROW(MappedFaults(file.bytes()));
}

// --- the program's own handler ---

std::atomic<int> foreign_calls{0};

void foreign(int, siginfo_t* info, void*) {
  ++foreign_calls;
  if (info->si_code <= 0) return;  // sent
  const auto page = reinterpret_cast<uintptr_t>(info->si_addr) / kPage * kPage;
  mmap(reinterpret_cast<void*>(page), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

TEST(MappedFaults, OtherFaultsGoToTheHandlerBefore) {
  struct sigaction mine {
  }, original{};
  mine.sa_sigaction = foreign;
  mine.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGBUS, &mine, &original), 0);
  const MappedOnes ours(kPage), theirs(kPage);
  {
    const MappedFaults watched(ours.bytes());
    theirs.cut(0);
    EXPECT_EQ(theirs.read(0), 0);
    EXPECT_EQ(foreign_calls, 1);
    raise(SIGBUS);
    EXPECT_EQ(foreign_calls, 2);
    EXPECT_FALSE(watched.damaged());
    ours.cut(0);
    EXPECT_EQ(ours.read(0), 0);
    EXPECT_EQ(foreign_calls, 2);
    EXPECT_TRUE(watched.damaged());
  }
  struct sigaction now {};
  ASSERT_EQ(sigaction(SIGBUS, &original, &now), 0);
  EXPECT_EQ(now.sa_sigaction, foreign) << "with nothing left to watch, all is as it was";
}

/// Nobody's handler but the program's, which knows ours only by what sigaction() gave it.
struct sigaction below {};
void on_top(int signal, siginfo_t* info, void* context) {
  ++foreign_calls;
  below.sa_sigaction(signal, info, context);
}

TEST(MappedFaults, AHandlerInstalledLaterMayPassOn) {
  const MappedOnes first(kPage), second(kPage);
  struct sigaction mine {};
  mine.sa_sigaction = on_top;
  mine.sa_flags = SA_SIGINFO | SA_NODEFER;
  foreign_calls = 0;
  {
    const MappedFaults watched(first.bytes());
    ASSERT_EQ(sigaction(SIGBUS, &mine, &below), 0);
  }
  // Ours stayed below it, and is not installed a second time above it: that would be a circle.
  MappedFaults watched(second.bytes());
  second.cut(0);
  EXPECT_EQ(second.read(0), 0);
  EXPECT_TRUE(watched.damaged());
  EXPECT_EQ(foreign_calls, 1);
  ASSERT_EQ(sigaction(SIGBUS, &below, nullptr), 0);
}

TEST(MappedFaultsDeathTest, WithoutAHandlerBeforeOtherFaultsEndTheProcess) {
  const auto with = [](void (*before)(int), auto act) {
    signal(SIGBUS, before);
    const MappedOnes ours(kPage), theirs(kPage);
    const MappedFaults watched(ours.bytes());
    theirs.cut(0);
    act(theirs);
    _exit(0);
  };
  const auto fault = [](const MappedOnes& theirs) { theirs.read(0); };
  const auto send = [](const MappedOnes&) { raise(SIGBUS); };
  EXPECT_EXIT(with(SIG_DFL, fault), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(with(SIG_DFL, send), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(with(SIG_IGN, fault), testing::KilledBySignal(SIGBUS), "");  // a fault cannot be ignored
  EXPECT_EXIT(with(SIG_IGN, send), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace moetier
