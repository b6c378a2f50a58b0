#include "base/cpu_quota.h"

#include <fstream>

#include "base/cgroup.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

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
  double tightest = 0;
  for (const fs::path& directory : cgroup_directories(v2, "cpu", root)) {
    const double quota = group_quota(directory, v2);
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
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
