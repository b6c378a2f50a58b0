// What the read engines share: how a read is checked, continued and metered.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/read_engine.h"

namespace moetier {

/// A read that has begun.
struct ReadPart {
  ReadRequest request;
  uint64_t got = 0;         ///< bytes that came
  uint64_t from = 0;        ///< where in the request the system call in flight begins
  int again = 0;            ///< times in a row that the kernel said to try again
  bool registered = false;  ///< its memory is

  /// Bytes of the next system call; the kernel takes less than 2 GiB at once.
  uint64_t next_bytes() const;
  /// Takes the answer of that call: bytes, or a negative errno. True when the read is over; `error` says how.
  bool take(int64_t answer, bool direct, int* error);
};

/// An error for a request that cannot be meant: a file that is not there, more needed than asked for.
void check_request(const ReadRequest& request, size_t files);

/// The time with at least one read in flight.
class BusyTime {
 public:
  void begin() {
    if (in_flight_++ == 0) since_ = Clock::now();
  }
  void end() {
    if (--in_flight_ == 0) seconds_ += elapsed();
  }
  double seconds() const { return seconds_ + (in_flight_ > 0 ? elapsed() : 0); }

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }
  Clock::time_point since_;
  double seconds_ = 0;
  int64_t in_flight_ = 0;
};

/// Null, and a reason in `why`, where the kernel does not let us.
std::unique_ptr<ReadEngine> make_uring_engine(int depth, std::span<const ReadFile> files, std::string* why);
std::unique_ptr<ReadEngine> make_thread_engine(int lanes, std::span<const ReadFile> files);

}  // namespace moetier
