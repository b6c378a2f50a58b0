// The scheduler's end of a Stream, and the bell that wakes the scheduler.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "server/stream.h"

namespace moetier {

/// Wakes the scheduler's thread, and stops a batch that nobody wants any more. Outlives the scheduler where a reader
/// still holds a Stream.
class Bell {
 public:
  using Clock = std::chrono::steady_clock;
  void ring();
  /// Waits until someone rang since the last wait, or until `until`.
  void wait(Clock::time_point until);

  /// The batch that begins is of this task alone (0: of several); then abort_if_alone() of it stops the batch.
  void begin_batch(uint64_t alone) {
    abort_ = false;
    alone_ = alone;
  }
  void abort_if_alone(uint64_t task) {
    if (alone_ == task) abort_ = true;
  }
  void abort() { abort_ = true; }
  const std::atomic<bool>* abort_flag() const { return &abort_; }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  bool ringing_ = false;
  std::atomic<uint64_t> alone_{0};
  std::atomic<bool> abort_{false};
};

class StreamWriter {
 public:
  /// `capacity`: events; `bell`: rung when the reader cancels, or makes room in a stream that was full.
  StreamWriter(uint64_t task, size_t capacity, std::shared_ptr<Bell> bell);
  /// Tells the reader that the request failed, if it was never told how it ended.
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;
  /// The reader's end. Call it once: when the reader lets go of it, the request is cancelled.
  std::shared_ptr<Stream> reader();
  /// True from when the stream is full until half of it was read: nothing more should be made for it.
  bool full() const;
  /// How the reader ended it, if it did: cancelled or stalled.
  std::optional<Finish> cancelled() const;
  /// Adds an event; never waits. The last one always fits; others are for streams that are not full.
  void push(StreamEvent event);

 private:
  std::shared_ptr<Stream::Impl> impl_;
};

}  // namespace moetier
