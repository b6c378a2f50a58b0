#include "engine/machine.h"

#include <sys/utsname.h>

#include <fstream>

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

}  // namespace moetier
