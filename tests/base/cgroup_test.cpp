#include "base/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace moetier {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

/// A made-up "/proc/self" that says where hierarchies are mounted and which groups the process is in.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("moetier-cgroup-" + std::to_string(getpid()));
    fs::create_directories(root_ / "proc/self");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::vector<std::string> directories(const std::string& mounts, const std::string& groups, bool v2 = true,
                                       std::string_view controller = "memory") const {
    std::ofstream(root_ / "proc/self/mountinfo") << mounts;
    std::ofstream(root_ / "proc/self/cgroup") << groups;
    std::vector<std::string> found;
    for (const fs::path& directory : cgroup_directories(v2, controller, root_))
      found.push_back(directory.lexically_relative(root_).string());
    return found;
  }

  fs::path root_;
};

constexpr const char* kV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(CgroupTest, V2NamesEveryGroupAboveOutermostFirst) {
  EXPECT_THAT(directories(kV2, "0::/user.slice/user-0.slice/app\n"),
              ElementsAre("sys/fs/cgroup", "sys/fs/cgroup/user.slice", "sys/fs/cgroup/user.slice/user-0.slice",
                          "sys/fs/cgroup/user.slice/user-0.slice/app"));
  EXPECT_THAT(directories(kV2, "0::/\n"), ElementsAre("sys/fs/cgroup"));
}

TEST_F(CgroupTest, V2BesideV1IsTakenFromItsOwnLineAndMount) {
  const std::string mounts = std::string("31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n") +
                             "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const std::string groups = "5:memory:/old\n0::/new\n";
  EXPECT_THAT(directories(mounts, groups), ElementsAre("sys/fs/cgroup/unified", "sys/fs/cgroup/unified/new"));
  EXPECT_THAT(directories(mounts, groups, false), ElementsAre("sys/fs/cgroup/memory", "sys/fs/cgroup/memory/old"));
  EXPECT_THAT(directories(mounts, groups, false, "cpu"), IsEmpty());
}

TEST_F(CgroupTest, AContainersMountBeginsAtItsGroup) {
  const std::string mount = "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_THAT(directories(mount, "0::/docker/x/job\n"), ElementsAre("sys/fs/cgroup", "sys/fs/cgroup/job"));
  EXPECT_THAT(directories(mount, "0::/docker/x\n"), ElementsAre("sys/fs/cgroup"));
}

TEST_F(CgroupTest, NeverLeavesTheHierarchy) {
  EXPECT_THAT(directories(kV2, "0::/a/../../etc\n"), ElementsAre("sys/fs/cgroup", "sys/fs/cgroup/a"));
  EXPECT_THAT(directories(kV2, "0::/../outside\n"), ElementsAre("sys/fs/cgroup"));
}

TEST_F(CgroupTest, GarbageIsNoHierarchy) {
  EXPECT_THAT(directories("", "0::/a\n"), IsEmpty());
  EXPECT_THAT(directories(kV2, ""), IsEmpty());
  EXPECT_THAT(directories(kV2, "nonsense\n0:/a\n"), IsEmpty());
  EXPECT_THAT(directories("30 23\n - cgroup2\n", "0::/a\n"), IsEmpty());
}

}  // namespace
}  // namespace moetier
