#include "base/cpu_quota.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace moetier {
namespace {

namespace fs = std::filesystem;

/// True if `item` is one of the comma-separated `list`.
bool has_item(const std::string& list, const std::string& item) {
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    if (part == item) return true;
  }
  return false;
}

/// Where a cgroup hierarchy is mounted, and which of its groups stands at that mount point.
struct Mount {
  fs::path point;
  std::string group;
};

/// The mount of the v2 hierarchy, or of the v1 hierarchy with the cpu controller.
std::optional<Mount> find_mount(const fs::path& root, bool v2) {
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
    const bool match = v2 ? type == "cgroup2" : type == "cgroup" && has_item(options, "cpu");
    if (match && !point.empty() && point[0] == '/') return Mount{root / fs::path(point).relative_path(), group};
  }
  return std::nullopt;
}

/// The process's group in the v2 hierarchy, or in the v1 hierarchy with the cpu controller.
std::optional<std::string> find_group(const fs::path& root, bool v2) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "0::/group" or "4:cpu,cpuacct:/group"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() && line.compare(0, first, "0") == 0 : has_item(controllers, "cpu")) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

/// The limit that the files of one group's directory state; 0 if none.
double group_quota(const fs::path& directory, bool v2) {
  double quota = 0, period = 0;
  if (v2) {
    std::ifstream in(directory / "cpu.max");
    if (!(in >> quota >> period)) return 0;  // "max 100000" is no number, and no limit
  } else {
    std::ifstream quota_file(directory / "cpu.cfs_quota_us"), period_file(directory / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

double hierarchy_quota(const fs::path& root, bool v2) {
  const std::optional<Mount> mount = find_mount(root, v2);
  const std::optional<std::string> group = find_group(root, v2);
  if (!mount || !group) return 0;
  // In a container the mount may show only part of the hierarchy; the group's path counts from what the mount shows.
  fs::path below = fs::path(*group).lexically_relative(mount->group);
  if (below.empty() || *below.begin() == "..") below = fs::path(*group).relative_path();
  double tightest = 0;
  const auto consider = [&](const fs::path& directory) {
    const double quota = group_quota(directory, v2);
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  };
  fs::path directory = mount->point;
  consider(directory);
  for (const fs::path& part : below) {
    if (part == "..") break;
    directory /= part;
    consider(directory);
  }
  return tightest;
}

}  // namespace

double cgroup_cpu_quota(const fs::path& root) {
  const double v2 = hierarchy_quota(root, true), v1 = hierarchy_quota(root, false);
  if (v1 == 0 || v2 == 0) return v1 + v2;
  return v1 < v2 ? v1 : v2;
}

}  // namespace moetier
