// Calls at a set time, from a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace moetier {

/// For work that cannot look at the clock itself. One time at once; a new one replaces it.
class Alarm {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Alarm(std::function<void()> call);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  void set(Time at);
  /// After this it does not call (a call that has begun may still go on).
  void clear();

 private:
  void run();
  std::function<void()> call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Time at_ = Time::max();
  bool end_ = false;
  std::thread thread_;
};

}  // namespace moetier
