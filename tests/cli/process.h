// Runs the program as a user would.
#pragma once

#include <string>
#include <utility>
#include <vector>

struct ProcessResult {
  int code = -1;  ///< exit code, or 128 + the signal
  std::string out, err;
};

/// Runs MOETIER_BINARY with these arguments; `input` is its standard input; `environment` adds NAME=VALUE.
ProcessResult run_moetier(const std::vector<std::string>& arguments, const std::string& input = "",
                          const std::vector<std::string>& environment = {});

/// A folder that is removed when it goes out of scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

std::string slurp(const std::string& path);
