// What a model's operations cost: bytes of weights always, time where it is asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"

namespace moetier {

/// What kind of operation, and on which weights: so that the same operation of different layers is one line.
struct OpKey {
  std::string_view name;              ///< a literal: "matmul", "attention", ...
  TensorType type = TensorType::f32;  ///< of the weights
  int64_t columns = 0, rows = 0;      ///< of the weights, all terms together; 0: no weights
  int terms = 0;
  bool operator==(const OpKey&) const = default;
};

/// Adds up calls. Not for several threads at once.
class OpProfile {
 public:
  struct Line {
    OpKey key;
    uint64_t calls = 0;
    double seconds = 0;       ///< of the caller, without its waits
    double wait_seconds = 0;  ///< of the caller, for other threads to finish their part
    uint64_t bytes = 0;       ///< of weights
  };
  /// Batches of one row are decoding; others are prompts, or several sequences.
  enum class Phase : uint8_t { single, batch };
  struct Lines {
    std::vector<Line> lines;   ///< in the order of first use
    uint64_t rows = 0;         ///< computed
    double batch_seconds = 0;  ///< in batches, operations or not
    uint64_t rounds = 0;       ///< of the thread pool: barriers
  };

  /// `timed`: times each operation, at the cost of reading a clock twice.
  explicit OpProfile(bool timed) : timed_(timed) {}
  bool timed() const { return timed_; }

  /// What is added from now on belongs to a batch of so many rows.
  void begin_batch(int64_t rows);
  void end_batch(double seconds);
  void add(const OpKey& key, double seconds, double wait_seconds, uint64_t bytes);
  void count(uint64_t bytes) { weight_bytes_ += bytes; }

  const Lines& lines(Phase phase) const { return lines_[static_cast<size_t>(phase)]; }
  /// Of weights, multiplied with since it was made: experts by the picked ones.
  uint64_t weight_bytes() const { return weight_bytes_; }
  PoolMeters& pool() { return pool_; }
  /// All that was added so far: seconds, and seconds of waits.
  double added_seconds() const { return added_seconds_; }
  double added_waits() const { return added_waits_; }
  /// Lines begin anew; the rest goes on.
  void reset();

 private:
  bool timed_;
  Phase phase_ = Phase::single;
  Lines lines_[2];
  uint64_t weight_bytes_ = 0;
  double added_seconds_ = 0, added_waits_ = 0;
  PoolMeters pool_;
  uint64_t rounds_before_ = 0;
};

/// Adds the time of its life to a profile, less what was added meanwhile by the parts of the operation. Without a
/// profile it does nothing.
class OpTimer {
 public:
  OpTimer(OpProfile* profile, const OpKey& key, uint64_t bytes = 0) : profile_(profile) {
    if (profile == nullptr) return;
    key_ = key;
    bytes_ = bytes;
    pool_waits_ = profile->pool().wait_seconds;
    added_ = profile->added_seconds();
    waits_ = profile->added_waits();
    start_ = std::chrono::steady_clock::now();
  }
  ~OpTimer() {
    if (profile_ != nullptr) finish();
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  void finish();
  OpProfile* profile_;
  OpKey key_{};
  uint64_t bytes_ = 0;
  double pool_waits_ = 0, added_ = 0, waits_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// `inner` with all calls added to `profile`, which must outlive it.
std::unique_ptr<Compute> make_profiled_compute(std::unique_ptr<Compute> inner, OpProfile& profile);

}  // namespace moetier
