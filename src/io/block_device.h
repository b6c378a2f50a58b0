// The drive under a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace moetier {

/// What the kernel tells of the device that a file lies on. A file system without one of its own (network, overlay,
/// btrfs) leaves most of it unknown.
struct BlockDevice {
  std::string name;  ///< of the whole disk, e.g. "nvme0n1"; empty if unknown
  /// Name, maker's id and size: the same after a restart. Empty if unknown.
  std::string id;
  std::optional<uint64_t> read_ahead_bytes;
  std::optional<uint64_t> request_bytes;  ///< the largest that the kernel sends it
  std::optional<bool> rotational;

  /// What the kernel honours of one WILLNEED call, or of one read-ahead; 0 if unknown.
  uint64_t willneed_bytes() const;
};

/// Of the device that `path` lies on; nothing known where there is no such file. `root` stands for "/" of /sys, so that
/// tests can lay out their own.
BlockDevice block_device(const std::string& path, const std::filesystem::path& root = "/");

}  // namespace moetier
