#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "base/cpu_quota.h"
#include "base/thread_pool.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// The CPUs that share a core with this one, as the kernel writes them, e.g. "0,4"; empty if it does not tell.
std::string siblings(int cpu, const fs::path& root) {
  const fs::path topology = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    std::ifstream in(topology / name);
    if (std::string line; std::getline(in, line) && !line.empty()) return line;
  }
  return "";
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  // The kernel wants room for all CPUs it could have; ask with more until it is content.
  for (int room = 1024; room <= (1 << 20); room *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(room));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    const bool told = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; told && cpu < room; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (told) break;
  }
  return cpus;
}

int physical_cores(std::span<const int> cpus, const fs::path& root) {
  std::set<std::string> cores;
  int alone = 0;
  for (const int cpu : cpus) {
    const std::string core = siblings(cpu, root);
    if (core.empty()) {
      ++alone;
    } else {
      cores.insert(core);
    }
  }
  return static_cast<int>(cores.size()) + alone;
}

int default_threads(std::span<const int> cpus, const fs::path& root) {
  int threads = std::max(1, physical_cores(cpus, root));
  const double quota = cgroup_cpu_quota(root);
  if (quota > 0 && quota < threads) threads = std::max(1, static_cast<int>(std::ceil(quota)));
  return threads;
}

int default_threads() {
  const std::vector<int> cpus = allowed_cpus();
  return cpus.empty() ? available_cpus() : default_threads(cpus, "/");
}

}  // namespace moetier
