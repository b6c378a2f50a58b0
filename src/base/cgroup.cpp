#include "base/cgroup.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// True if `item` is one of the comma-separated `list`.
bool has_item(const std::string& list, std::string_view item) {
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    if (part == item) return true;
  }
  return false;
}

/// Where a hierarchy is mounted, and which of its groups stands at that mount point.
struct Mount {
  fs::path point;
  std::string group;
};

std::optional<Mount> find_mount(const fs::path& root, bool v2, std::string_view controller) {
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // "id parent major:minor group point options ... - type source super-options"
    std::istringstream fields(line);
    std::string skip, group, point, field;
    fields >> skip >> skip >> skip >> group >> point;
    while (fields >> field && field != "-") {
    }
    std::string type, source, options;
    fields >> type >> source >> options;
    const bool match = v2 ? type == "cgroup2" : type == "cgroup" && has_item(options, controller);
    if (match && !point.empty() && point[0] == '/') return Mount{root / fs::path(point).relative_path(), group};
  }
  return std::nullopt;
}

/// The process's own group.
std::optional<std::string> find_group(const fs::path& root, bool v2, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "0::/group" or "4:cpu,cpuacct:/group"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() && line.compare(0, first, "0") == 0 : has_item(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> cgroup_directories(bool v2, std::string_view controller, const fs::path& root) {
  const std::optional<Mount> mount = find_mount(root, v2, controller);
  const std::optional<std::string> group = find_group(root, v2, controller);
  if (!mount || !group) return {};
  // In a container the mount may show only part of the hierarchy; the group's path counts from what the mount shows.
  fs::path below = fs::path(*group).lexically_relative(mount->group);
  if (below.empty() || *below.begin() == "..") below = fs::path(*group).relative_path();
  std::vector<fs::path> directories{mount->point};
  for (const fs::path& part : below) {
    if (part == "..") break;
    if (part == ".") continue;  // the mount's own
    directories.push_back(directories.back() / part);
  }
  return directories;
}

}  // namespace moetier
