// The memory there is: the machine's, what the cgroups allow, and what this process has of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace moetier {

/// A cgroup with a memory limit.
struct MemoryGroup {
  std::string path;          ///< its directory
  uint64_t limit = 0;        ///< bytes; of v2 the lower of memory.max and memory.high
  uint64_t usage = 0;        ///< page cache included
  uint64_t reclaimable = 0;  ///< of usage: file pages, which the kernel drops when the group needs room
  /// Bytes that can still be had.
  uint64_t room() const {
    const uint64_t held = usage - (reclaimable < usage ? reclaimable : usage);
    return held < limit ? limit - held : 0;
  }
};

/// Bytes; 0 is unknown or none where it does not say otherwise.
struct MemoryState {
  uint64_t total = 0;          ///< MemTotal
  uint64_t mem_available = 0;  ///< MemAvailable, the kernel's own estimate; 0 = unknown
  uint64_t swap_free = 0;      ///< SwapFree
  uint64_t swap_total = 0;
  /// What this process can still have: the least of MemAvailable and of the room of every cgroup around it. nullopt if
  /// neither is known.
  std::optional<uint64_t> available;
  /// Of that, what nothing needs to be dropped from the page cache for: the least of MemFree and of what the groups
  /// have not used at all. 0 if unknown.
  uint64_t unused = 0;
  std::optional<MemoryGroup> tightest;  ///< the group with the least room; nullopt: no limit around this process
  uint64_t group_limit = 0;             ///< the lowest limit of the groups around this process; 0 = none
};
/// `root` stands for "/", so that tests can lay out their own /proc and mounts under it.
MemoryState memory_state(const std::filesystem::path& root = "/");

/// What the process's own cgroup (the innermost whose usage can be read) holds, other processes in it and page cache
/// included.
struct GroupUsage {
  uint64_t usage = 0;
  std::optional<uint64_t> peak;  ///< nullopt: the kernel does not tell
};
/// nullopt outside of any cgroup that counts memory.
std::optional<GroupUsage> group_usage(const std::filesystem::path& root = "/");

/// Bytes that this process may use: RAM or the tightest limit of the cgroups (v2 memory.max and memory.high, or v1
/// memory.limit_in_bytes, of the process's own group and all above it). 0 if nothing can be read.
uint64_t memory_limit(const std::filesystem::path& root = "/");

struct ProcessMemory {
  uint64_t resident = 0, peak_resident = 0;     ///< bytes
  uint64_t anonymous = 0, file = 0;             ///< parts of resident
  uint64_t major_faults = 0, minor_faults = 0;  ///< since the process began
  std::optional<uint64_t> swapped;              ///< bytes of it that are in swap (VmSwap)
  std::optional<uint64_t> locked;               ///< bytes that cannot be swapped out (VmLck)
};
ProcessMemory process_memory(const std::filesystem::path& root = "/");

/// Faults of all threads since the process began. Cheap enough to be asked for each token; allocates nothing.
struct Faults {
  uint64_t major = 0, minor = 0;
};
Faults process_faults();

/// Bytes that the whole machine has read back from swap since it started; nullopt if it does not tell. What the process
/// itself read back, the kernel does not count apart.
std::optional<uint64_t> swapped_in(const std::filesystem::path& root = "/");

}  // namespace moetier
