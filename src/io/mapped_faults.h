// A mapped file that is cut short or cannot be read any more must not end the process: SIGBUS becomes zeros and a flag.
#pragma once

#include <cstddef>
#include <span>

namespace moetier {

/// Watches one mapping for as long as it lives. Where the kernel cannot give one of its pages (the file was truncated,
/// or the drive failed), the whole mapping becomes zeros, so that whoever reads it goes on, and damaged() is true from
/// then on: what was computed since may be wrong. A page that the file's new end cuts reads as zeros without a fault,
/// so a file that lost less than a page goes unnoticed.
///
/// The process's SIGBUS handler is ours while any mapping is watched; faults at other addresses go to the handler that
/// was there before. A program that installs its own later must pass on what it does not know.
class MappedFaults {
 public:
  static constexpr size_t kMost = 4096;  ///< mappings watched at once in a process

  /// `mapping` begins where mmap() put it, and stays mapped for as long as it is watched; an empty one never faults.
  /// Errors: more than kMost, a begin in the middle of a page, a system that refuses the handler.
  explicit MappedFaults(std::span<const std::byte> mapping);
  ~MappedFaults();
  MappedFaults(MappedFaults&& other) noexcept;
  MappedFaults(const MappedFaults&) = delete;
  MappedFaults& operator=(const MappedFaults&) = delete;
  MappedFaults& operator=(MappedFaults&&) = delete;

  bool damaged() const;

 private:
  struct Slot;
  struct Table;
  Slot* slot_ = nullptr;
};

}  // namespace moetier
