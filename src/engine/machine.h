// The machine, as the run record tells them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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

/// CPUs of the machine that are online, whoever may use them.
int machine_cpus();
/// CPU time of this process, all threads; nullopt where the system does not tell.
std::optional<double> process_cpu_seconds();
/// Since this process began, to the clock tick; nullopt where /proc does not tell.
std::optional<double> process_age_seconds(const std::filesystem::path& root = "/");
/// CPU time that anything on the machine took since it started; nullopt where /proc/stat does not tell.
std::optional<double> busy_cpu_seconds(const std::filesystem::path& root = "/");
/// Bytes that were fetched from drives on behalf of this process, by reads, page faults and read-ahead; nullopt where
/// /proc/self/io does not tell.
std::optional<uint64_t> process_device_bytes(const std::filesystem::path& root = "/");

}  // namespace moetier
