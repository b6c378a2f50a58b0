#include "io/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/cgroup.h"
#include "io/small_files.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // v1 writes a number near 2^63 for none

uint64_t kib_after(const fs::path& file, std::string_view key) {
  return std::min(number_after(file, key).value_or(0), kNoLimit / 1024) * 1024;
}

/// The files of one version of the hierarchy.
struct GroupFiles {
  bool v2;
  const char* limits[2];
  const char *usage, *peak;
  const char* file_pages[2];  ///< lines of memory.stat; of v1 those that count the groups below too
};
constexpr GroupFiles kVersions[] = {
    {true, {"memory.max", "memory.high"}, "memory.current", "memory.peak", {"inactive_file", "active_file"}},
    {false,
     {"memory.limit_in_bytes", nullptr},
     "memory.usage_in_bytes",
     "memory.max_usage_in_bytes",
     {"total_inactive_file", "total_active_file"}}};

/// The groups around this process that have a limit.
std::vector<MemoryGroup> limited_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  for (const GroupFiles& files : kVersions) {
    for (const fs::path& directory : cgroup_directories(files.v2, "memory", root)) {
      MemoryGroup group;
      group.path = directory.string();
      group.limit = kNoLimit;
      for (const char* limit : files.limits) {
        if (limit != nullptr) group.limit = std::min(group.limit, first_number(directory / limit).value_or(kNoLimit));
      }
      if (group.limit == kNoLimit) continue;
      group.usage = first_number(directory / files.usage).value_or(0);
      for (const char* pages : files.file_pages) {
        group.reclaimable += std::min(number_after(directory / "memory.stat", pages).value_or(0), kNoLimit);
      }
      group.reclaimable = std::min(group.reclaimable, group.usage);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace

MemoryState memory_state(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  MemoryState state;
  state.total = kib_after(meminfo, "MemTotal:");
  state.mem_available = kib_after(meminfo, "MemAvailable:");
  state.swap_free = kib_after(meminfo, "SwapFree:");
  state.swap_total = kib_after(meminfo, "SwapTotal:");
  if (state.mem_available > 0) state.available = state.mem_available;
  state.unused = kib_after(meminfo, "MemFree:");
  for (const MemoryGroup& group : limited_groups(root)) {
    state.unused = std::min(state.unused, group.limit - std::min(group.usage, group.limit));
    if (!state.tightest || group.room() < state.tightest->room()) state.tightest = group;
    state.group_limit = state.group_limit == 0 ? group.limit : std::min(state.group_limit, group.limit);
    state.available = std::min(state.available.value_or(group.room()), group.room());
  }
  return state;
}

std::optional<GroupUsage> group_usage(const fs::path& root) {
  for (const GroupFiles& files : kVersions) {
    std::vector<fs::path> directories = cgroup_directories(files.v2, "memory", root);
    for (; !directories.empty(); directories.pop_back()) {
      const std::optional<uint64_t> usage = first_number(directories.back() / files.usage);
      if (usage) return GroupUsage{*usage, first_number(directories.back() / files.peak)};
    }
  }
  return std::nullopt;
}

uint64_t memory_limit(const fs::path& root) {
  uint64_t limit = kib_after(root / "proc/meminfo", "MemTotal:");
  for (const MemoryGroup& group : limited_groups(root)) limit = limit == 0 ? group.limit : std::min(limit, group.limit);
  return limit;
}

ProcessMemory process_memory(const fs::path& root) {
  const fs::path status = root / "proc/self/status";
  ProcessMemory memory;
  memory.resident = kib_after(status, "VmRSS:");
  memory.peak_resident = kib_after(status, "VmHWM:");
  memory.anonymous = kib_after(status, "RssAnon:");
  memory.file = kib_after(status, "RssFile:");
  if (number_after(status, "VmSwap:")) memory.swapped = kib_after(status, "VmSwap:");
  if (number_after(status, "VmLck:")) memory.locked = kib_after(status, "VmLck:");
  const std::string line = first_line(root / "proc/self/stat");
  const size_t end = line.rfind(')');  // of the program's name, which may hold anything
  if (end != std::string::npos) {
    std::istringstream fields(line.substr(end + 1));
    std::string skip;
    for (int i = 0; i < 7; ++i) fields >> skip;  // state ... flags
    uint64_t child_minor = 0;
    fields >> memory.minor_faults >> child_minor >> memory.major_faults;
  }
  return memory;
}

Faults process_faults() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  return {static_cast<uint64_t>(usage.ru_majflt), static_cast<uint64_t>(usage.ru_minflt)};
}

std::optional<uint64_t> swapped_in(const fs::path& root) {
  const std::optional<uint64_t> pages = number_after(root / "proc/vmstat", "pswpin");
  if (!pages) return std::nullopt;
  return *pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace moetier
