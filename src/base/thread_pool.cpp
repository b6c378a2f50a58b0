#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_quota.h"
#include "base/error.h"

namespace moetier {
namespace {

/// How long an idle thread looks for work before it sleeps.
constexpr std::chrono::microseconds kSpin{30};
constexpr int64_t kMaxChunksPerRound = std::numeric_limits<int32_t>::max();

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks at `done()` until it is true or the time to spin is over; says which.
template <typename Done>
bool spin_until(bool may_spin, Done done) {
  if (done()) return true;
  if (!may_spin) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

// One round of work is described by `fn` and the ticket. Claiming a chunk is a compare-and-swap on the ticket, which
// holds the number of chunks beside the next index: whoever succeeds has a chunk of the round that is running now, and
// that round cannot end (nor `fn` change) before the chunk is counted in `finished`. So a late worker needs no epoch
// to be safe, and nobody waits for workers that never woke up.
struct ThreadPool::Impl {
  explicit Impl(int n) : may_spin(n <= available_cpus()) {
    workers.reserve(static_cast<size_t>(n) - 1);
    try {
      for (int i = 1; i < n; ++i) workers.emplace_back([this, i] { work(i); });
    } catch (...) {
      stop_all();
      throw;
    }
  }

  ~Impl() { stop_all(); }

  void stop_all() {
    stop.store(true, std::memory_order_relaxed);
    wake(workers.size());
    for (std::thread& worker : workers) worker.join();
  }

  /// Up to `n` sleepers; those that spin see the change by themselves.
  void wake(size_t n) {
    round.fetch_add(1, std::memory_order_release);
    if (n >= workers.size()) {
      round.notify_all();
    } else {
      for (size_t i = 0; i < n; ++i) round.notify_one();
    }
  }

  static bool has_chunk(uint64_t t) { return (t & 0xffffffffu) < (t >> 32); }

  /// Takes chunks of the round that is running until there are none; true if there was one.
  bool take_chunks(int thread) {
    int32_t taken = 0;
    uint64_t t = ticket.load(std::memory_order_acquire);
    while (has_chunk(t)) {
      if (!ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      try {
        (*fn)(first_chunk + static_cast<int64_t>(t & 0xffffffffu), thread);
      } catch (...) {
        if (!failed.exchange(true, std::memory_order_relaxed)) failure = std::current_exception();
      }
      ++taken;
      ++t;  // likely still so; if not, the exchange fails and says what it is now
    }
    if (taken == 0) return false;
    // The count of this round; it cannot change before our chunks are counted.
    const auto all = static_cast<int32_t>(t >> 32);
    if (finished.fetch_add(taken, std::memory_order_acq_rel) + taken == all) finished.notify_one();
    return true;
  }

  void work(int thread) {
    while (true) {
      const int32_t seen = round.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (take_chunks(thread)) continue;
      const bool more = spin_until(may_spin, [&] {
        return has_chunk(ticket.load(std::memory_order_relaxed)) || round.load(std::memory_order_relaxed) != seen;
      });
      if (!more) round.wait(seen, std::memory_order_acquire);
    }
  }

  void run_round(int64_t first, int32_t n, const ChunkFn& call) {
    first_chunk = first;
    fn = &call;
    finished.store(0, std::memory_order_relaxed);
    ticket.store(static_cast<uint64_t>(n) << 32, std::memory_order_release);
    if (n > 1 && !workers.empty()) wake(static_cast<size_t>(n) - 1);
    take_chunks(0);
    const auto all_done = [&] { return finished.load(std::memory_order_acquire) == n; };
    while (!spin_until(may_spin, all_done)) {
      const int32_t now = finished.load(std::memory_order_acquire);
      if (now != n) finished.wait(now, std::memory_order_acquire);
    }
  }

  const bool may_spin;
  std::vector<std::thread> workers;
  alignas(64) std::atomic<uint64_t> ticket{0};   ///< chunks of the round (high half), next chunk (low half)
  alignas(64) std::atomic<int32_t> finished{0};  ///< chunks of the round that have ended
  alignas(64) std::atomic<int32_t> round{0};     ///< what idle workers sleep on
  std::atomic<bool> stop{false};
  const ChunkFn* fn = nullptr;
  int64_t first_chunk = 0;
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
};

ThreadPool::ThreadPool(int n_threads) {
  if (n_threads < 1) fail("a thread pool needs at least 1 thread, not {}", n_threads);
  impl_ = std::make_unique<Impl>(n_threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(int64_t n_chunks, ChunkFn fn) {
  Impl& pool = *impl_;
  for (int64_t first = 0; first < n_chunks; first += kMaxChunksPerRound) {
    const int64_t n = std::min(n_chunks - first, kMaxChunksPerRound);
    pool.run_round(first, static_cast<int32_t>(n), fn);
  }
  if (pool.failed.load(std::memory_order_relaxed)) {
    pool.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(pool.failure, nullptr));
  }
}

int available_cpus() {
  // The kernel wants room for all CPUs it could have; ask with more until it is content.
  int allowed = 0;
  for (int room = 1024; room <= (1 << 20) && allowed == 0; room *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(room));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    if (sched_getaffinity(0, bytes, set) == 0) allowed = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  if (allowed < 1) allowed = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const double quota = cgroup_cpu_quota();
  if (quota > 0 && quota < allowed) allowed = std::max(1, static_cast<int>(std::ceil(quota)));
  return allowed;
}

}  // namespace moetier
