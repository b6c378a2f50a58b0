// The machine and this process, as the run record tells them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace moetier {

struct MachineFacts {
  std::string cpu;            ///< its name, e.g. from /proc/cpuinfo; empty if unknown
  int cpus = 1;               ///< this process may use
  uint64_t memory_total = 0;  ///< bytes of RAM; 0 if unknown
  uint64_t memory_limit = 0;  ///< bytes this process may use: RAM, or the tightest cgroup around it; 0 if unknown
  std::string kernel;         ///< e.g. "Linux 6.1.0"
};
/// `root` stands for "/", so that tests can lay out their own /proc and mounts under it.
MachineFacts machine_facts(const std::filesystem::path& root = "/");

/// Bytes that this process may use: RAM or the tightest limit of the cgroups (v2 memory.max or v1
/// memory.limit_in_bytes, the process's own group and all above it). 0 if nothing can be read.
uint64_t memory_limit(const std::filesystem::path& root = "/");

struct ProcessMemory {
  uint64_t resident = 0, peak_resident = 0;     ///< bytes
  uint64_t anonymous = 0, file = 0;             ///< parts of resident
  uint64_t major_faults = 0, minor_faults = 0;  ///< since the process began
};
ProcessMemory process_memory(const std::filesystem::path& root = "/");

}  // namespace moetier
