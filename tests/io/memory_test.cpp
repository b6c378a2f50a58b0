#include "io/memory.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/temp_root.h"

namespace moetier {
namespace {

using testing::EndsWith;
using testing_support::TempRoot;

constexpr const char* kV2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr const char* kV1 = "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(MemoryState, OfThisMachine) {
  const MemoryState state = memory_state();
  EXPECT_GT(state.total, 0u);
  EXPECT_GT(state.mem_available, 0u);
  ASSERT_TRUE(state.available.has_value());
  EXPECT_LE(*state.available, state.mem_available);
}

TEST(MemoryState, NothingToReadIsUnknown) {
  const TempRoot root;
  const MemoryState state = memory_state(root.path());
  EXPECT_EQ(state.total, 0u);
  EXPECT_FALSE(state.available.has_value());
  EXPECT_FALSE(state.tightest.has_value());
  EXPECT_EQ(state.group_limit, 0u);
  EXPECT_EQ(memory_limit(root.path()), 0u);
  EXPECT_FALSE(swapped_in(root.path()).has_value());
  EXPECT_FALSE(process_memory(root.path()).swapped.has_value());
}

TEST(MemoryState, WithoutGroupsTheKernelsEstimateHolds) {
  const TempRoot root;
  root.put("proc/meminfo",
           "MemTotal:       8000 kB\nMemFree: 10 kB\nMemAvailable:   5000 kB\nSwapTotal: 300 kB\nSwapFree: 200 kB\n");
  const MemoryState state = memory_state(root.path());
  EXPECT_EQ(state.total, 8000u * 1024);
  EXPECT_EQ(state.mem_available, 5000u * 1024);
  EXPECT_EQ(state.available, 5000u * 1024);
  EXPECT_EQ(state.swap_free, 200u * 1024);
  EXPECT_EQ(state.swap_total, 300u * 1024);
  EXPECT_FALSE(state.tightest.has_value());
}

TEST(MemoryState, EveryV2GroupOnTheWayCountsAndFilePagesAreRoom) {
  const TempRoot root;
  root.put("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 5000000 kB\n");
  root.put("proc/self/mountinfo", kV2);
  root.put("proc/self/cgroup", "0::/outer/inner/own\n");
  root.put("sys/fs/cgroup/outer/memory.max", "1000000\n");
  root.put("sys/fs/cgroup/outer/memory.current", "900000\n");
  root.put("sys/fs/cgroup/outer/memory.stat", "anon 100000\nfile 800000\nactive_file 300000\ninactive_file 400000\n");
  root.put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.put("sys/fs/cgroup/outer/inner/memory.high", "2000000\n");
  root.put("sys/fs/cgroup/outer/inner/memory.current", "200000\n");
  root.put("sys/fs/cgroup/outer/inner/own/memory.max", "max\n");
  MemoryState state = memory_state(root.path());
  ASSERT_TRUE(state.tightest.has_value());
  EXPECT_THAT(state.tightest->path, EndsWith("/outer"));
  EXPECT_EQ(state.tightest->limit, 1000000u);
  EXPECT_EQ(state.tightest->usage, 900000u);
  EXPECT_EQ(state.tightest->reclaimable, 700000u);
  EXPECT_EQ(state.available, 800000u);
  EXPECT_EQ(state.group_limit, 1000000u);
  EXPECT_EQ(memory_limit(root.path()), 1000000u);

  // The group with the least room need not be the one with the lowest limit.
  root.put("sys/fs/cgroup/outer/inner/memory.current", "1700000\n");
  state = memory_state(root.path());
  EXPECT_THAT(state.tightest->path, EndsWith("/inner"));
  EXPECT_EQ(state.available, 300000u);
  EXPECT_EQ(state.group_limit, 1000000u);

  // The lower of max and high counts; a group above its limit has no room.
  root.put("sys/fs/cgroup/outer/inner/memory.max", "1500000\n");
  EXPECT_EQ(memory_state(root.path()).available, 0u);
}

TEST(MemoryState, V1CountsTheGroupsBelowToo) {
  const TempRoot root;
  root.put("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n");
  root.put("proc/self/mountinfo", kV1);
  root.put("proc/self/cgroup", "5:cpu,memory:/job\n0::/\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n");
  root.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1500000\n");
  root.put("sys/fs/cgroup/memory/job/memory.stat",
           "inactive_file 1\nactive_file 2\ntotal_inactive_file 300000\ntotal_active_file 200000\n");
  const MemoryState state = memory_state(root.path());
  EXPECT_EQ(state.available, 1000000u);
  EXPECT_THAT(state.tightest->path, EndsWith("/job"));
  EXPECT_EQ(memory_limit(root.path()), 2000000u);
}

TEST(MemoryState, GarbageIsNoLimitAndNoNumber) {
  const TempRoot root;
  root.put("proc/meminfo", "MemTotal: -5 kB\nMemAvailable:\nMemAvailable: 99999999999999999999999 kB\nSwapFree: x\n");
  root.put("proc/self/mountinfo", kV2);
  root.put("proc/self/cgroup", "0::/a\n");
  root.put("sys/fs/cgroup/memory.max", "-1\n");
  root.put("sys/fs/cgroup/a/memory.max", "12345678901234567890123\n");
  root.put("sys/fs/cgroup/a/memory.high", "");
  const MemoryState state = memory_state(root.path());
  EXPECT_FALSE(state.tightest.has_value());
  EXPECT_FALSE(state.available.has_value());
  EXPECT_EQ(state.swap_free, 0u);
}

TEST(MemoryState, MoreFilePagesThanUsageIsAllRoom) {
  const TempRoot root;
  root.put("proc/self/mountinfo", kV2);
  root.put("proc/self/cgroup", "0::/a\n");
  root.put("sys/fs/cgroup/a/memory.max", "1000\n");
  root.put("sys/fs/cgroup/a/memory.current", "500\n");
  root.put("sys/fs/cgroup/a/memory.stat", "inactive_file 18446744073709551615\nactive_file 18446744073709551615\n");
  EXPECT_EQ(memory_state(root.path()).available, 1000u);
}

TEST(GroupUsage, IsThatOfTheInnermostGroupThatTells) {
  const TempRoot root;
  EXPECT_FALSE(group_usage(root.path()).has_value());
  root.put("proc/self/mountinfo", std::string(kV2) + kV1);
  root.put("proc/self/cgroup", "5:cpu,memory:/job/own\n0::/\n");
  EXPECT_FALSE(group_usage(root.path()).has_value());
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000\n");
  root.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5000\n");
  root.put("sys/fs/cgroup/memory/job/memory.max_usage_in_bytes", "6000\n");
  ASSERT_TRUE(group_usage(root.path()).has_value());
  EXPECT_EQ(group_usage(root.path())->usage, 5000u);
  EXPECT_EQ(group_usage(root.path())->peak, 6000u);
  // A v2 hierarchy that counts memory goes before one of v1.
  root.put("sys/fs/cgroup/memory.current", "7000\n");
  EXPECT_EQ(group_usage(root.path())->usage, 7000u);
  EXPECT_FALSE(group_usage(root.path())->peak.has_value());
}

TEST(ProcessMemory, GrowsWithWhatIsTouched) {
  const ProcessMemory before = process_memory();
  const Faults faults_before = process_faults();
  constexpr size_t kBytes = 32 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (size_t i = 0; i < kBytes; i += 4096) static_cast<volatile char*>(memory)[i] = 1;
  const ProcessMemory after = process_memory();
  const Faults faults_after = process_faults();
  munmap(memory, kBytes);
  EXPECT_GE(after.anonymous, before.anonymous + kBytes * 3 / 4);
  EXPECT_GE(after.resident, before.resident + kBytes * 3 / 4);
  EXPECT_GE(after.peak_resident, after.resident);
  EXPECT_TRUE(after.swapped.has_value());
  EXPECT_GT(faults_after.minor, faults_before.minor);
  EXPECT_GT(after.minor_faults, before.minor_faults);
}

TEST(ProcessMemory, ReadsTheKernelsFiles) {
  const TempRoot root;
  root.put(
      "proc/self/status",
      "Name:\tx\nVmHWM:\t 40 kB\nVmRSS:\t 30 kB\nRssAnon:\t 10 kB\nRssFile:\t 20 kB\nVmLck:\t 5 kB\nVmSwap:\t 7 kB\n");
  root.put("proc/self/stat", "12 (a) b c) S 1 2 3 4 5 6 111 222 333 444 5\n");
  root.put("proc/vmstat", "pswpin_other 9\npswpin 3\npswpout 4\n");
  const ProcessMemory memory = process_memory(root.path());
  EXPECT_EQ(memory.peak_resident, 40u * 1024);
  EXPECT_EQ(memory.resident, 30u * 1024);
  EXPECT_EQ(memory.anonymous, 10u * 1024);
  EXPECT_EQ(memory.file, 20u * 1024);
  EXPECT_EQ(memory.locked, 5u * 1024);
  EXPECT_EQ(memory.swapped, 7u * 1024);
  EXPECT_EQ(memory.minor_faults, 111u);
  EXPECT_EQ(memory.major_faults, 333u);
  EXPECT_EQ(swapped_in(root.path()), 3u * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace moetier
