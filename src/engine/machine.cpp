#include "engine/machine.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/cgroup.h"
#include "base/thread_pool.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// The number that follows `key` at the start of a line, e.g. "MemTotal:"; 0 if there is none.
uint64_t number_after(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    uint64_t value = 0;
    return rest >> value ? value : 0;
  }
  return 0;
}

uint64_t kib_after(const fs::path& file, std::string_view key) {
  return number_after(file, key) * 1024;
}

/// The smaller of two limits, where 0 is none.
uint64_t tighter(uint64_t a, uint64_t b) {
  return a == 0 || b == 0 ? a + b : std::min(a, b);
}

uint64_t first_number(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? value : 0;  // "max" is no number, and no limit
}

std::string cpu_name(const fs::path& root) {
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

uint64_t memory_limit(const fs::path& root) {
  uint64_t limit = kib_after(root / "proc/meminfo", "MemTotal:");
  for (const fs::path& group : cgroup_directories(true, "memory", root)) {
    limit = tighter(limit, first_number(group / "memory.max"));
  }
  for (const fs::path& group : cgroup_directories(false, "memory", root)) {
    limit = tighter(limit, first_number(group / "memory.limit_in_bytes"));
  }
  return limit;
}

MachineFacts machine_facts(const fs::path& root) {
  MachineFacts facts;
  facts.cpu = cpu_name(root);
  facts.cpus = available_cpus();
  facts.memory_total = kib_after(root / "proc/meminfo", "MemTotal:");
  facts.memory_limit = memory_limit(root);
  utsname names{};
  if (::uname(&names) == 0) facts.kernel = std::string(names.sysname) + " " + names.release;
  return facts;
}

ProcessMemory process_memory(const fs::path& root) {
  const fs::path status = root / "proc/self/status";
  ProcessMemory memory;
  memory.resident = kib_after(status, "VmRSS:");
  memory.peak_resident = kib_after(status, "VmHWM:");
  memory.anonymous = kib_after(status, "RssAnon:");
  memory.file = kib_after(status, "RssFile:");
  std::ifstream in(root / "proc/self/stat");
  std::string line;
  std::getline(in, line);
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

}  // namespace moetier
