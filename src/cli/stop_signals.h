// SIGTERM and SIGINT for a program that ends its work before it ends itself.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace moetier::cli {

/// Takes both signals for the whole process. To be made before any other thread. Until serving() a signal ends the
/// process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void serving();
  /// Waits until `count` signals have come, or forget() was called.
  void wait_for(int count);
  /// Wakes who waits.
  void forget();
  int came() const;

 private:
  void watch();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
  bool serving_ = false, forgotten_ = false, ended_ = false;
  std::thread watcher_;
};

}  // namespace moetier::cli
