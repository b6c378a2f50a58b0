#include "engine/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/thread_pool.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

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

MachineFacts machine_facts(const fs::path& root) {
  MachineFacts facts;
  facts.cpu = cpu_name(root);
  facts.cpus = available_cpus();
  facts.memory_total = memory_state(root).total;
  facts.memory_limit = memory_limit(root);
  utsname names{};
  if (::uname(&names) == 0) facts.kernel = std::string(names.sysname) + " " + names.release;
  return facts;
}

int machine_cpus() {
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::optional<double> process_cpu_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<double> busy_cpu_seconds(const fs::path& root) {
  std::ifstream in(root / "proc/stat");
  std::string name;
  // user nice system idle iowait irq softirq steal: all but idle and iowait is work (steal is another guest's).
  uint64_t times[8] = {};
  if (!(in >> name) || name != "cpu") return std::nullopt;
  for (uint64_t& t : times) {
    if (!(in >> t)) return std::nullopt;
  }
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (ticks <= 0) return std::nullopt;
  return static_cast<double>(times[0] + times[1] + times[2] + times[5] + times[6] + times[7]) /
         static_cast<double>(ticks);
}

std::optional<double> process_age_seconds(const fs::path& root) {
  std::ifstream in(root / "proc/self/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');  // of the program's name, which may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skip;
  for (int i = 0; i < 19; ++i) fields >> skip;  // state ... itrealvalue
  double start_ticks = 0;
  const long ticks = ::sysconf(_SC_CLK_TCK);
  timespec now{};
  if (!(fields >> start_ticks) || ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         start_ticks / static_cast<double>(ticks);
}

std::optional<uint64_t> process_device_bytes(const fs::path& root) {
  std::ifstream in(root / "proc/self/io");
  for (std::string key; in >> key;) {
    uint64_t value = 0;
    if (!(in >> value)) break;
    if (key == "read_bytes:") return value;
  }
  return std::nullopt;
}

}  // namespace moetier
