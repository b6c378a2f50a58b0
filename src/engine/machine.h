// The machine, as the run record tells them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/memory.h"

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

}  // namespace moetier
