// Bounds how many requests of a kind are worked on at once.
#pragma once

#include <atomic>
#include <memory>

namespace moetier::server {

class Gate {
 public:
  explicit Gate(int most) : most_(most) {}
  /// A lease that counts until it is let go; nullptr if there are as many as may be.
  std::shared_ptr<void> enter() {
    if (inside_.fetch_add(1) >= most_) {
      --inside_;
      return nullptr;
    }
    return {this, [](Gate* gate) { --gate->inside_; }};
  }
  int inside() const { return inside_; }
  int most() const { return most_; }

 private:
  const int most_;
  std::atomic<int> inside_{0};
};

}  // namespace moetier::server
