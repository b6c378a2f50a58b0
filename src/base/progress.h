// A progress line for long work: on a terminal it is redrawn in place, in a pipe nothing is printed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moetier {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  ///< wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Redraws at most ten times a second. `note` is shown behind the percentage.
  void update(uint64_t done, uint64_t total, const std::string& note = "");

 private:
  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace moetier
