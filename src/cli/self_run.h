// Runs this program once more, as a process of its own: for measurements that shall not see each other's memory.
#pragma once

#include <string>
#include <vector>

namespace moetier::cli {

/// What it wrote to standard output; its standard error is this process's. Errors: it cannot be started, or it ended
/// with another code than 0, which is told with its arguments. Ctrl-C reaches it as it reaches this process.
std::string run_self(const std::vector<std::string>& arguments);

}  // namespace moetier::cli
