#include "server/alarm.h"

#include <utility>

namespace moetier {

Alarm::Alarm(std::function<void()> call) : call_(std::move(call)), thread_([this] { run(); }) {}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Alarm::set(Time at) {
  {
    const std::lock_guard lock(mutex_);
    at_ = at;
  }
  changed_.notify_one();
}

void Alarm::clear() {
  const std::lock_guard lock(mutex_);
  at_ = Time::max();  // its thread finds that out by itself
}

void Alarm::run() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (at_ == Time::max()) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < at_) {
      changed_.wait_until(lock, Time(at_));
    } else {
      at_ = Time::max();
      lock.unlock();
      call_();
      lock.lock();
    }
  }
}

}  // namespace moetier
