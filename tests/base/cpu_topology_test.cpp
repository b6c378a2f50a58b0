#include "base/cpu_topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/thread_pool.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// A made-up "/" with a /sys.
class CpuTopologyTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("moetier-cpu-topology-" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void cpu(int number, const std::string& siblings, const char* file = "core_cpus_list") {
    put("sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/" + file, siblings + "\n");
  }
  int cores(const std::vector<int>& cpus) const { return physical_cores(cpus, root_); }

  fs::path root_;
};

TEST_F(CpuTopologyTest, HyperthreadsOfOneCoreCountOnce) {
  for (int i = 0; i < 4; ++i) {
    cpu(i, std::to_string(i) + "," + std::to_string(i + 4));
    cpu(i + 4, std::to_string(i) + "," + std::to_string(i + 4));
  }
  EXPECT_EQ(cores({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(cores({0, 4}), 1);
  EXPECT_EQ(cores({3, 5}), 2);
  EXPECT_EQ(cores({}), 0);
}

TEST_F(CpuTopologyTest, OldKernelsNameTheFileOtherwise) {
  cpu(0, "0-1", "thread_siblings_list");
  cpu(1, "0-1", "thread_siblings_list");
  EXPECT_EQ(cores({0, 1}), 1);
}

TEST_F(CpuTopologyTest, WithoutASysEveryCpuIsACore) {
  EXPECT_EQ(cores({0, 1, 2}), 3);
  cpu(0, "0-1");
  cpu(1, "0-1");
  EXPECT_EQ(cores({0, 1, 2}), 2);
}

TEST_F(CpuTopologyTest, ThreadsStayWithinTheQuota) {
  const std::vector<int> cpus{0, 1, 2, 3};
  for (const int i : cpus) cpu(i, std::to_string(i));
  EXPECT_EQ(default_threads(cpus, root_), 4);
  put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(default_threads(cpus, root_), 3);
  put("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(default_threads(cpus, root_), 1);
  EXPECT_EQ(default_threads({}, root_), 1);
}

TEST_F(CpuTopologyTest, HereThereIsAtLeastOneAndNoMoreThanMayBeUsed) {
  EXPECT_FALSE(allowed_cpus().empty());
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), available_cpus());
}

}  // namespace
}  // namespace moetier
