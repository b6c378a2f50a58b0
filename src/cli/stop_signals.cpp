#include "cli/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <ctime>

namespace moetier::cli {
namespace {

constexpr int kThird = 3;  // a third signal does not even wait for threads

sigset_t both() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = both();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);  // inherited by every thread made later
  ::signal(SIGPIPE, SIG_IGN);
  watcher_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  watcher_.join();
}

void StopSignals::watch() {
  const sigset_t set = both();
  const timespec pause{.tv_sec = 0, .tv_nsec = 200'000'000};
  for (;;) {
    const int number = ::sigtimedwait(&set, nullptr, &pause);
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (number <= 0) continue;
    if (!serving_ || ++came_ >= kThird) ::_exit(128 + number);
    changed_.notify_all();
  }
}

void StopSignals::serving() {
  const std::lock_guard lock(mutex_);
  serving_ = true;
}

void StopSignals::wait_for(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return came_ >= count || forgotten_; });
}

void StopSignals::forget() {
  const std::lock_guard lock(mutex_);
  forgotten_ = true;
  changed_.notify_all();
}

int StopSignals::came() const {
  const std::lock_guard lock(mutex_);
  return came_;
}

}  // namespace moetier::cli
