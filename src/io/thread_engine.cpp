// Reads by a few threads, each in pread(2).
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "io/read_parts.h"
#include "io/ring.h"

namespace moetier {
namespace {

/// While it lives, threads are started that get no signal but those that a thread brings on itself: a handler of the
/// program runs on the program's own threads.
class SignalsAway {
 public:
  SignalsAway() {
    sigset_t away;
    sigfillset(&away);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&away, own);
    pthread_sigmask(SIG_BLOCK, &away, &before_);
  }
  ~SignalsAway() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsAway(const SignalsAway&) = delete;
  SignalsAway& operator=(const SignalsAway&) = delete;

 private:
  sigset_t before_;
};

class ThreadEngine final : public ReadEngine {
 public:
  ThreadEngine(int lanes, std::span<const ReadFile> files) : files_(files) {
    const SignalsAway away;
    lanes_.reserve(static_cast<size_t>(lanes));
    try {
      for (int i = 0; i < lanes; ++i) lanes_.emplace_back([this] { run_lane(); });
    } catch (const std::system_error& e) {
      if (lanes_.empty()) fail("no thread can be started for reading: {}", e.what());
      log::warn("only {} of {} threads for reading can be started: {}", lanes_.size(), lanes, e.what());
    }
  }

  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      wanted_.clear();
    }
    work_.notify_all();
    for (std::thread& lane : lanes_) lane.join();
  }

  std::string_view name() const override { return "threads"; }
  int depth() const override { return static_cast<int>(lanes_.size()); }

  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& request : requests) check_request(request, files_.size());
    size_t idle = 0;
    {
      const std::lock_guard lock(mutex_);
      wanted_.reserve(wanted_.size() + requests.size());
      finished_.reserve(outstanding_ + requests.size());
      for (const ReadRequest& request : requests) wanted_.push(request);
      idle = lanes_.size() - in_flight_;
    }
    outstanding_ += requests.size();
    if (requests.size() >= idle) {
      work_.notify_all();
    } else {
      for (size_t i = 0; i < requests.size(); ++i) work_.notify_one();
    }
  }

  size_t poll(std::span<ReadResult> results) override {
    if (come_.load(std::memory_order_acquire) == 0) return 0;
    const std::lock_guard lock(mutex_);
    return give(results);
  }

  size_t wait(std::span<ReadResult> results) override {
    if (outstanding_ == 0 || results.empty()) return 0;
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !finished_.empty(); });
    return give(results);
  }

  size_t outstanding() const override { return outstanding_; }

  void cancel() override {
    std::unique_lock lock(mutex_);
    wanted_.clear();
    cancelled_ = true;
    arrived_.wait(lock, [&] { return in_flight_ == 0; });
    cancelled_ = false;
    finished_.clear();
    come_.store(0, std::memory_order_relaxed);
    outstanding_ = 0;
  }

  std::string register_memory(std::span<const std::span<std::byte>>) override { return ""; }
  void unregister_memory() override {}

  ReadMeters meters() const override {
    const std::lock_guard lock(mutex_);
    ReadMeters meters = meters_;
    meters.busy_seconds = busy_.seconds();
    return meters;
  }

 private:
  /// Called with the mutex held.
  size_t give(std::span<ReadResult> results) {
    size_t n = 0;
    while (n < results.size() && !finished_.empty()) results[n++] = finished_.pop();
    come_.store(finished_.size(), std::memory_order_relaxed);
    outstanding_ -= n;
    return n;
  }

  void run_lane() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return stop_ || !wanted_.empty(); });
      if (stop_) return;
      ReadPart part{.request = wanted_.pop()};
      ++in_flight_;
      busy_.begin();
      lock.unlock();
      const int error = read(part);
      lock.lock();
      busy_.end();
      --in_flight_;
      (error == 0 ? meters_.reads : meters_.errors) += 1;
      meters_.bytes += part.got;
      if (!cancelled_) {
        finished_.push({part.request.tag, error});
        come_.store(finished_.size(), std::memory_order_release);
      }
      arrived_.notify_one();
    }
  }

  int read(ReadPart& part) const {
    const ReadFile& file = files_[static_cast<size_t>(part.request.file)];
    for (;;) {
      const ssize_t n = pread(file.fd(), part.request.to + part.from, part.next_bytes(),
                              static_cast<off_t>(part.request.offset + part.from));
      int error = 0;
      if (part.take(n < 0 ? -errno : n, file.direct(), &error)) return error;
    }
  }

  const std::span<const ReadFile> files_;
  size_t outstanding_ = 0;       ///< of the calling thread
  std::atomic<size_t> come_{0};  ///< finished_.size(), to be looked at without the mutex
  mutable std::mutex mutex_;     ///< of all below
  std::condition_variable work_, arrived_;
  Ring<ReadRequest> wanted_;
  Ring<ReadResult> finished_;
  size_t in_flight_ = 0;
  bool stop_ = false, cancelled_ = false;
  ReadMeters meters_;
  BusyTime busy_;
  std::vector<std::thread> lanes_;  ///< last: they use all of the above
};

}  // namespace

std::unique_ptr<ReadEngine> make_thread_engine(int lanes, std::span<const ReadFile> files) {
  return std::make_unique<ThreadEngine>(lanes, files);
}

}  // namespace moetier
