// Checks an audit log: every event and field, and that the numbers agree with each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetier {

struct AuditCheck {
  uint64_t records = 0, runs = 0, requests = 0, exits = 0;  ///< runs: `load` records
  uint64_t sums = 0;                                        ///< runs whose requests add up to exit minus ready
  std::vector<std::string> problems;                        ///< one sentence each, with the line; at most kMostProblems
  static constexpr size_t kMostProblems = 50;
  bool good() const { return problems.empty(); }
};

/// `text`: the whole log, of one process or of several that shared it. A run without `exit` was killed, which is no
/// problem; a line that is no record is one.
AuditCheck check_audit_log(std::string_view text);

}  // namespace moetier
