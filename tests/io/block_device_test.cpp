#include "io/block_device.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "io/temp_root.h"

namespace moetier {
namespace {

using testing_support::TempRoot;

/// "major:minor" of the device under a file.
std::string number_of(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0);
  return fmt::format("{}:{}", major(facts.st_dev), minor(facts.st_dev));
}

class BlockDeviceTest : public testing::Test {
 protected:
  /// /sys/dev/block/MAJ:MIN -> ../../devices/`at`, as the kernel has it.
  void link_to(const std::string& at) const {
    namespace fs = std::filesystem;
    fs::create_directories(root_.path() / "sys/dev/block");
    fs::create_directories(root_.path() / "sys/devices" / at);
    fs::create_symlink("../../devices/" + at, root_.path() / "sys/dev/block" / number_of(file_));
  }
  BlockDevice device() const { return block_device(file_, root_.path()); }

  TempRoot root_;
  std::string file_ = root_.path().string();
};

TEST_F(BlockDeviceTest, OfAWholeDisk) {
  link_to("pci0/nvme0n1");
  root_.put("sys/devices/pci0/nvme0n1/queue/read_ahead_kb", "128\n");
  root_.put("sys/devices/pci0/nvme0n1/queue/max_sectors_kb", "1280\n");
  root_.put("sys/devices/pci0/nvme0n1/queue/rotational", "0\n");
  root_.put("sys/devices/pci0/nvme0n1/wwid", "eui.0025 38b1\n");
  root_.put("sys/devices/pci0/nvme0n1/device/model", "Fast Drive  1TB   \n");
  root_.put("sys/devices/pci0/nvme0n1/size", "2000409264\n");
  const BlockDevice drive = device();
  EXPECT_EQ(drive.name, "nvme0n1");
  EXPECT_EQ(drive.id, "nvme0n1:eui.0025_38b1:Fast_Drive_1TB:2000409264");
  EXPECT_EQ(drive.read_ahead_bytes, 128u << 10);
  EXPECT_EQ(drive.request_bytes, 1280u << 10);
  EXPECT_EQ(drive.rotational, false);
  EXPECT_EQ(drive.willneed_bytes(), 1280u << 10);
}

TEST_F(BlockDeviceTest, OfAPartitionIsThatOfItsDisk) {
  link_to("ata1/sda/sda2");
  root_.put("sys/devices/ata1/sda/sda2/partition", "2\n");
  root_.put("sys/devices/ata1/sda/queue/read_ahead_kb", "8192\n");
  root_.put("sys/devices/ata1/sda/queue/max_sectors_kb", "512\n");
  root_.put("sys/devices/ata1/sda/queue/rotational", "1\n");
  const BlockDevice drive = device();
  EXPECT_EQ(drive.name, "sda");
  EXPECT_EQ(drive.id, "sda");
  EXPECT_EQ(drive.rotational, true);
  EXPECT_EQ(drive.willneed_bytes(), 8192u << 10);
}

TEST_F(BlockDeviceTest, AnonymousDevicesAreUnknown) {
  EXPECT_EQ(device().name, "");
  EXPECT_EQ(device().id, "");
  EXPECT_FALSE(device().rotational.has_value());
  EXPECT_EQ(device().willneed_bytes(), 0u);
  root_.put("sys/class/bdi/" + number_of(file_) + "/read_ahead_kb", "256\n");
  EXPECT_EQ(device().name, "");
  EXPECT_EQ(device().willneed_bytes(), 256u << 10) << "a network file system reads ahead too";
}

TEST_F(BlockDeviceTest, GarbageIsUnknown) {
  link_to("x/vda");
  root_.put("sys/devices/x/vda/queue/read_ahead_kb", "99999999999999999999\n");
  root_.put("sys/devices/x/vda/queue/max_sectors_kb", "-3\n");
  root_.put("sys/devices/x/vda/queue/rotational", "no\n");
  root_.put("sys/devices/x/vda/serial", "\x01\"/..\n");
  EXPECT_EQ(device().willneed_bytes(), 0u);
  EXPECT_FALSE(device().rotational.has_value());
  EXPECT_EQ(device().id, "vda:..");
}

TEST_F(BlockDeviceTest, OfNoFileIsUnknown) {
  EXPECT_EQ(block_device(file_ + "/absent").id, "");
}

}  // namespace
}  // namespace moetier
