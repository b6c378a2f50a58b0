// Runs a Python program that nobody has read, where it can do little harm.
#pragma once

#include <string>

namespace moetier::cli {

struct SandboxLimits {
  int cpu_seconds = 10, wall_seconds = 20;
  unsigned long memory_bytes = 1UL << 30, file_bytes = 1UL << 20;
};

struct SandboxResult {
  bool passed = false;  ///< it ended by itself with code 0
  std::string why;      ///< else: one line
};

/// Why programs cannot be shut in on this machine; empty if they can. What is needed: python3, Landlock (so that it can
/// write nowhere but in a folder that is removed afterwards), and a filter that refuses sockets.
std::string sandbox_problem();

/// Runs `program` with python3 in a process of its own, in isolated mode, with limits on time, memory, files and
/// processes, without network, and, if `shut_in`, without a way to write outside its own folder. Errors: a process that
/// cannot be started.
SandboxResult run_python(const std::string& program, bool shut_in = true, const SandboxLimits& limits = {});

}  // namespace moetier::cli
