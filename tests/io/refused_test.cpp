// What an ordinary user and a locked-down container cannot have. Threads have rights of their own: each test takes them
// from one that ends with it.
#include <gmock/gmock.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "io/read_engine.h"
#include "io/temp_files.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::BlockMemory;
using testing_support::bytes_at;
using testing_support::error_of;
using testing_support::TempFiles;

/// From now on io_uring_setup(2) answers `error` to the calling thread and those it starts. False where the kernel has
/// no such filters.
bool forbid_io_uring(int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(__NR_io_uring_setup), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = 4, .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Reads the file whole and compares.
void expect_reads(ReadEngine& engine, const std::vector<std::byte>& expected, const BlockMemory& memory) {
  std::fill_n(memory.data(), memory.span().size(), std::byte{0});
  const ReadRequest request{0, 0, memory.data(), memory.span().size(), expected.size(), 7};
  engine.submit({&request, 1});
  ReadResult result[2];
  ASSERT_EQ(engine.wait(result), 1u);
  EXPECT_EQ(result[0].error, 0);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.data()));
}

TEST(IoUringForbidden, ThreadsReadInsteadAndItIsSaid) {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    bool forbidden = false;
    std::thread([&] {
      forbidden = forbid_io_uring(error);
      if (!forbidden) return;
      const TempFiles files;
      const std::string path = files.make("model", 300'000, 1);
      const auto expected = bytes_at(path, 0, 300'000);
      std::vector<ReadFile> opened;
      opened.emplace_back(path, true);
      const auto engine = make_read_engine({.lanes = 3}, opened);
      EXPECT_EQ(engine->name(), "threads");
      EXPECT_EQ(engine->depth(), 3);
      EXPECT_THAT(log::warnings(),
                  Contains(AllOf(HasSubstr("io_uring"), HasSubstr(std::strerror(error)), HasSubstr("3 threads"))));
      const BlockMemory memory(300'000);
      expect_reads(*engine, expected, memory);
      EXPECT_THAT(error_of([&] { make_read_engine({.kind = ReadKind::io_uring}, opened); }),
                  HasSubstr(std::strerror(error)));
    }).join();
    if (!forbidden) GTEST_SKIP() << "this kernel does not let a thread give up system calls";
  }
}

/// Lowers RLIMIT_MEMLOCK while it lives.
class LockedMemoryLimit {
 public:
  explicit LockedMemoryLimit(rlim_t bytes) {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    rlimit lower = before_;
    lower.rlim_cur = std::min(bytes, before_.rlim_max);
    setrlimit(RLIMIT_MEMLOCK, &lower);
  }
  ~LockedMemoryLimit() { setrlimit(RLIMIT_MEMLOCK, &before_); }
  LockedMemoryLimit(const LockedMemoryLimit&) = delete;
  LockedMemoryLimit& operator=(const LockedMemoryLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Registration, RefusedToAnOrdinaryUserIsSaidAndReadsGoOn) {
  std::string skip;
  const TempFiles files;
  const std::string path = files.make("model", 1'000'000, 1);
  const auto expected = bytes_at(path, 0, 1'000'000);
  std::vector<ReadFile> opened;
  opened.emplace_back(path, true);
  std::thread([&] {
    const LockedMemoryLimit limit(64 << 10);
    // By the system call itself the rights of this thread alone change.
    constexpr int kNobody = 65534;
    if (geteuid() == 0) {
      ASSERT_EQ(syscall(SYS_setresgid, kNobody, kNobody, kNobody), 0);
      ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    }
    std::unique_ptr<ReadEngine> engine;
    skip = error_of([&] { engine = make_read_engine({.kind = ReadKind::io_uring, .depth = 4}, opened); });
    if (engine == nullptr) return;
    const BlockMemory memory(1 << 20);
    const std::vector<std::span<std::byte>> regions{memory.span()};
    EXPECT_THAT(engine->register_memory(regions),
                AllOf(HasSubstr("1.00 MiB"), HasSubstr("Cannot allocate memory"), HasSubstr("64.0 KiB")));
    expect_reads(*engine, expected, memory);
    engine->unregister_memory();
    // A little of it is allowed.
    const std::vector<std::span<std::byte>> little{memory.span().first(8192)};
    EXPECT_THAT(engine->register_memory(little), IsEmpty());
    expect_reads(*engine, expected, memory);
  }).join();
  if (!skip.empty()) GTEST_SKIP() << skip;
}

TEST(Registration, OfTooMuchIsSaid) {
  std::vector<ReadFile> none;
  std::unique_ptr<ReadEngine> engine;
  const std::string skip = error_of([&] { engine = make_read_engine({.kind = ReadKind::io_uring}, none); });
  if (engine == nullptr) GTEST_SKIP() << skip;
  std::byte byte;
  const std::vector<std::span<std::byte>> large{{&byte, (size_t{1} << 30) + 1}};
  EXPECT_THAT(engine->register_memory(large), HasSubstr("1.00 GiB"));
  const std::vector<std::span<std::byte>> many((1 << 14) + 1, std::span<std::byte>(&byte, 1));
  EXPECT_THAT(engine->register_memory(many), HasSubstr("16385"));
  EXPECT_THAT(engine->register_memory({}), IsEmpty());
}

}  // namespace
}  // namespace moetier
