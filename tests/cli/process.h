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

/// A program that runs beside the test: what it writes comes in as it is written.
class RunningMoetier {
 public:
  explicit RunningMoetier(const std::vector<std::string>& arguments);
  ~RunningMoetier();  ///< kills it if it still runs
  RunningMoetier(const RunningMoetier&) = delete;
  RunningMoetier& operator=(const RunningMoetier&) = delete;

  void write(const std::string& text) const;  ///< to its standard input
  void close_input();
  /// Waits until one of its outputs holds `text`; false after `seconds` without it, or if it ended before.
  bool wait_for_out(const std::string& text, double seconds) { return wait_for(out_, text, seconds); }
  bool wait_for_err(const std::string& text, double seconds) { return wait_for(err_, text, seconds); }
  /// Waits until it handles a signal; false after `seconds`, or if it ended before.
  bool wait_until_caught(int number, double seconds);
  void signal(int number) const;
  std::string so_far() const { return slurp(err_); }  ///< on its standard error
  /// Waits for its end and returns what it gave; code -1 if it did not end in time.
  ProcessResult finish(double seconds);

 private:
  bool wait_for(const std::string& path, const std::string& text, double seconds);
  bool ended();
  TemporaryFolder folder_;
  std::string out_, err_;
  int child_ = -1, input_ = -1, status_ = 0;
  bool ended_ = false;
};
