// How much processor time the cgroups around this process allow.
#pragma once

#include <filesystem>

namespace moetier {

/// CPUs' worth of time per period that the tightest cgroup (v2 cpu.max or v1 cpu.cfs_quota_us, the process's own group
/// and all above it) allows; 0 if there is no limit or nothing can be read. `root` stands for "/", so that tests can
/// lay out their own /proc and mounts under it.
double cgroup_cpu_quota(const std::filesystem::path& root = "/");

}  // namespace moetier
