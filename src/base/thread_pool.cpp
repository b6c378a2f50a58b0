#include "base/thread_pool.h"

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
#include "base/cpu_topology.h"
#include "base/error.h"

namespace moetier {
namespace {

/// How long an idle thread looks for work before it sleeps.
constexpr std::chrono::microseconds kSpin{30};
/// Chunks that are taken from another thread's range at once.
constexpr uint32_t kMostStolen = 4;
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

// One round of work is `fn` and a range of chunks for every thread, so that a thread walks through neighbouring memory
// and what it prefetches is its own next chunk. A thread whose range is used up takes from the end of another's. A
// range is one atomic word; claiming is a compare-and-swap on it, and only the caller of run() fills an empty range:
// whoever succeeds has chunks of the round that is running now, and that round cannot end (nor `fn` change) before they
// are counted in `finished`. So a late worker needs no epoch to be safe, and nobody waits for workers that never woke
// up.
struct ThreadPool::Impl {
  explicit Impl(int n) : may_spin(n <= available_cpus()), ranges(static_cast<size_t>(n)) {
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

  /// Chunks [next, end) that nobody has claimed, in one word.
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };
  static uint64_t pack(uint32_t next, uint32_t end) { return (uint64_t{end} << 32) | next; }
  static uint32_t next_of(uint64_t word) { return static_cast<uint32_t>(word); }
  static uint32_t end_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  static bool is_empty(uint64_t word) { return next_of(word) >= end_of(word); }

  /// Chunks [first, last) that a thread has claimed.
  struct Claim {
    int64_t first = 0, last = 0;
    bool empty() const { return first == last; }
  };

  /// Claims the next chunk of the thread's own range.
  static Claim claim(Range& own) {
    uint64_t word = own.word.load(std::memory_order_acquire);
    while (!is_empty(word)) {
      const int64_t next = next_of(word);
      const uint64_t rest = pack(next_of(word) + 1, end_of(word));
      if (own.word.compare_exchange_weak(word, rest, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return {next, next + 1};
      }
    }
    return {};
  }

  /// Claims the end of another thread's range: half of it, but few, as nobody can take them from the thief.
  Claim steal(size_t thread) {
    for (size_t i = 1; i < ranges.size(); ++i) {
      Range& victim = ranges[(thread + i) % ranges.size()];
      uint64_t word = victim.word.load(std::memory_order_acquire);
      while (!is_empty(word)) {
        const uint32_t next = next_of(word), end = end_of(word);
        const uint32_t middle = end - std::min((end - next + 1) / 2, kMostStolen);
        if (victim.word.compare_exchange_weak(word, pack(next, middle), std::memory_order_acq_rel,
                                              std::memory_order_acquire)) {
          return {middle, end};
        }
      }
    }
    return {};
  }

  void run_chunk(int64_t chunk, size_t thread) {
    try {
      (*fn)(first_chunk + chunk, static_cast<int>(thread));
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) failure = std::current_exception();
    }
  }

  /// Takes chunks of the round that is running until there are none; true if there was one.
  bool take_chunks(size_t thread) {
    int64_t taken = 0;
    int32_t all = 0;
    while (true) {
      Claim chunk = claim(ranges[thread]);
      if (chunk.empty()) chunk = steal(thread);
      if (chunk.empty()) break;
      all = chunks;
      for (int64_t i = chunk.first; i < chunk.last; ++i) run_chunk(i, thread);
      taken += chunk.last - chunk.first;
    }
    if (taken == 0) return false;
    const auto count = static_cast<int32_t>(taken);
    if (finished.fetch_add(count, std::memory_order_acq_rel) + count == all) finished.notify_one();
    return true;
  }

  void work(int thread) {
    while (true) {
      const int32_t seen = round.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (take_chunks(static_cast<size_t>(thread))) continue;
      const bool more = spin_until(may_spin, [&] { return round.load(std::memory_order_relaxed) != seen; });
      if (!more) round.wait(seen, std::memory_order_acquire);
    }
  }

  /// Gives every thread its share of the round's chunks. A worker may begin before the last has got its own.
  void hand_out(int32_t n) {
    const auto threads = static_cast<int64_t>(ranges.size());
    for (int64_t i = 0; i < threads; ++i) {
      const auto next = static_cast<uint32_t>(n * i / threads), end = static_cast<uint32_t>(n * (i + 1) / threads);
      ranges[static_cast<size_t>(i)].word.store(pack(next, end), std::memory_order_release);
    }
  }

  void run_round(int64_t first, int32_t n, const ChunkFn& call) {
    first_chunk = first;
    fn = &call;
    chunks = n;
    finished.store(0, std::memory_order_relaxed);
    hand_out(n);
    if (n > 1 && !workers.empty()) wake(static_cast<size_t>(n) - 1);
    take_chunks(0);
    const auto all_done = [&] { return finished.load(std::memory_order_acquire) == n; };
    if (meters == nullptr) {
      wait_for(n, all_done);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    wait_for(n, all_done);
    ++meters->rounds;
    meters->wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  template <typename Done>
  void wait_for(int32_t n, Done all_done) {
    while (!spin_until(may_spin, all_done)) {
      const int32_t now = finished.load(std::memory_order_acquire);
      if (now != n) finished.wait(now, std::memory_order_acquire);
    }
  }

  const bool may_spin;
  std::vector<std::thread> workers;
  std::vector<Range> ranges;
  alignas(64) std::atomic<int32_t> finished{0};  ///< chunks of the round that have ended
  alignas(64) std::atomic<int32_t> round{0};     ///< what idle workers sleep on
  std::atomic<bool> stop{false};
  const ChunkFn* fn = nullptr;
  int64_t first_chunk = 0;
  int32_t chunks = 0;
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  PoolMeters* meters = nullptr;
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

void ThreadPool::meter(PoolMeters* meters) {
  impl_->meters = meters;
}

int available_cpus() {
  int allowed = static_cast<int>(allowed_cpus().size());
  if (allowed < 1) allowed = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const double quota = cgroup_cpu_quota();
  if (quota > 0 && quota < allowed) allowed = std::max(1, static_cast<int>(std::ceil(quota)));
  return allowed;
}

}  // namespace moetier
