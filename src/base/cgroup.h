// Where the limits of the cgroups around this process are written.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace moetier {

/// Directories of the process's own cgroup and of all above it that can be seen, outermost first; empty if there is no
/// such hierarchy. `controller` (e.g. "memory", "cpu") names the v1 hierarchy; for v2 it is not looked at. `root`
/// stands for "/", so that tests can lay out their own /proc and mounts under it.
std::vector<std::filesystem::path> cgroup_directories(bool v2, std::string_view controller,
                                                      const std::filesystem::path& root = "/");

}  // namespace moetier
