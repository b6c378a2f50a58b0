#include "base/cpu_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// A made-up "/" with a /proc and mounted cgroup hierarchies.
class CpuQuotaTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("moetier-cpu-quota-" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  fs::path root_;
};

constexpr const char* kV2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(CpuQuotaTest, NothingToReadIsNoLimit) {
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.0);
}

TEST_F(CpuQuotaTest, V2TakesTheTightestGroupOnTheWay) {
  put("proc/self/mountinfo", std::string("20 1 0:3 / /proc rw - proc proc rw\n") + kV2Mount);
  put("proc/self/cgroup", "0::/a/b/c\n");
  put("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  put("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_), 1.5);
}

TEST_F(CpuQuotaTest, V2MaxIsNoLimit) {
  put("proc/self/mountinfo", kV2Mount);
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.0);
}

TEST_F(CpuQuotaTest, ContainerSeesItsGroupAtTheMountPoint) {
  put("proc/self/mountinfo", "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/docker/x\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_), 0.5);
}

TEST_F(CpuQuotaTest, V1CpuControllerMountedTogetherWithCpuacct) {
  put("proc/self/mountinfo", "32 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("proc/self/cgroup", "5:cpuset:/z\n4:cpu,cpuacct:/job\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_), 3.0);
}

TEST_F(CpuQuotaTest, GarbageIsNoLimit) {
  put("proc/self/mountinfo", std::string("nonsense\n30 23\n\n - \n") + kV2Mount);
  put("proc/self/cgroup", ":\n::\n0\n0::/a/../../etc\n");
  put("sys/fs/cgroup/cpu.max", "12x\n");
  put("sys/fs/cgroup/a/cpu.max", "0 0\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.0);
}

}  // namespace
}  // namespace moetier
