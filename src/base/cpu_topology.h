// How many threads are worth it: one for each physical core.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

namespace moetier {

/// Numbers of the CPUs in this process's affinity mask, ascending; empty if the system does not tell.
std::vector<int> allowed_cpus();

/// Physical cores among `cpus`: hyperthreads of one core count once. A CPU of which the system tells nothing is a core
/// of its own. `root` stands for "/", so that tests can lay out their own /sys under it.
int physical_cores(std::span<const int> cpus, const std::filesystem::path& root = "/");

/// Threads to compute with when nobody says how many: the physical cores that this process may use, bounded by the CPU
/// time that its cgroups allow; at least 1. A second hyperthread of a core adds no memory bandwidth and next to no
/// arithmetic, and halves the caches.
int default_threads(std::span<const int> cpus, const std::filesystem::path& root);
int default_threads();

}  // namespace moetier
