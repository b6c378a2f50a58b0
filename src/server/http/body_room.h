// Bounds what bodies hold on their way in, over all connections.
#pragma once

#include <atomic>
#include <cstddef>

namespace moetier::server {

class BodyRoom {
 public:
  explicit BodyRoom(size_t most) : most_(most) {}
  size_t most() const { return most_; }
  /// What one connection holds. The first 64 KiB, enough for most requests, are free: the number of connections bounds
  /// them.
  class Share {
   public:
    explicit Share(BodyRoom& room) : room_(room) {}
    ~Share() { set(0); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    void set(size_t bytes) {
      const size_t counted = bytes > kFree ? bytes - kFree : 0;
      room_.used_ += counted - counted_;  // modulo 2^64
      counted_ = counted;
    }
    size_t counted() const { return counted_; }
    /// With this share, all together hold more than they may.
    bool exceeded() const { return counted_ > 0 && room_.used_ > room_.most_; }

   private:
    BodyRoom& room_;
    size_t counted_ = 0;
  };
  static constexpr size_t kFree = size_t{64} << 10;  // bytes

 private:
  const size_t most_;
  std::atomic<size_t> used_{0};
};

}  // namespace moetier::server
