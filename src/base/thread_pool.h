// Workers that share out chunks of one operation at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace moetier {

/// A borrowed reference to a callable `void(int64_t chunk, int thread)`; it must outlive the call that takes it.
class ChunkFn {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, ChunkFn>)
      ChunkFn(F&& f)  // NOLINT: implicit on purpose, so that a lambda can be passed where it stands
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, int64_t chunk, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(object))(chunk, thread);
        }) {}
  void operator()(int64_t chunk, int thread) const { call_(object_, chunk, thread); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

/// What a pool's caller met.
struct PoolMeters {
  uint64_t rounds = 0;      ///< calls of run() with work: each is a barrier
  double wait_seconds = 0;  ///< of the caller, after its own chunks, for the others'
};

/// A fixed set of threads; the caller of run() is one of them (thread 0). Which thread takes which chunk is not fixed,
/// so a chunk's result must not depend on it: that is how the thread count never changes a bit (promise 1). Idle
/// workers spin for some microseconds and then sleep; they never spin when there are more threads than CPUs allowed.
class ThreadPool {
 public:
  /// n_threads >= 1, the caller included.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls fn(chunk, thread) once for each chunk in [0, n_chunks) and returns when all are done. Every thread gets
  /// neighbouring chunks in ascending order; one that is done takes over some that another has left. Must not be called
  /// from inside a chunk. If chunks throw, the first
  /// exception is rethrown here once all have ended. Allocates nothing.
  void run(int64_t n_chunks, ChunkFn fn);

  /// From now on counts into `meters` (it must outlive that); nullptr: no more. Not during run().
  void meter(PoolMeters* meters);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// CPUs this process may run on (affinity mask and cgroup quota), at least 1.
int available_cpus();

}  // namespace moetier
