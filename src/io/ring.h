// A queue that allocates only when it grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace moetier {

/// First in, first out, in one block of memory that is used over and over.
template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  void clear() { first_ = size_ = 0; }

  /// Room for `n` items in all.
  void reserve(size_t n) {
    if (n <= items_.size()) return;
    std::vector<T> larger(std::max(n, items_.size() * 2));
    for (size_t i = 0; i < size_; ++i) larger[i] = items_[(first_ + i) % items_.size()];
    items_ = std::move(larger);
    first_ = 0;
  }

  void push(const T& item) {
    reserve(size_ + 1);
    items_[(first_ + size_) % items_.size()] = item;
    ++size_;
  }

  /// Only of a queue that is not empty.
  T pop() {
    T item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0, size_ = 0;
};

}  // namespace moetier
