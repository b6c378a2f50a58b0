// Memory of our own for entries: reserved once, taken as it is touched, given back from its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moetier {

/// A range of anonymous memory, aligned for huge pages. Only what has been touched takes memory.
class Arena {
 public:
  /// Reserves `bytes` of address space. An error if the system has none left.
  explicit Arena(uint64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  /// Gives the memory of [offset, offset + bytes) back to the system; it reads as zeros afterwards. No read may be
  /// under way there, and nothing of it may be registered with the kernel.
  void release(uint64_t offset, uint64_t bytes);
  /// Keeps [0, bytes) from being swapped out. Empty if that was done, else one sentence why not.
  std::string lock(uint64_t bytes);

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  void* mapping_ = nullptr;
  uint64_t mapped_ = 0;
};

}  // namespace moetier
