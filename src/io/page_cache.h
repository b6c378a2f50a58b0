// What of a mapping is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moetier {

/// Bytes of [begin, begin + bytes) that are in memory, or 0 where mincore(2) does not answer. For a file that the
/// process neither owns nor may write, the kernel says that all of it is (can_do_mincore in mm/mincore.c): too much,
/// not too little.
uint64_t bytes_in_memory(const std::byte* begin, uint64_t bytes);

/// Tells whether stretches of a mapped file are in the page cache. Of a file for which mincore(2) answers it is exact;
/// of others (see above) some pages of the stretch are tried with reads that do not wait (preadv2 with RWF_NOWAIT).
class PageCacheView {
 public:
  /// A file that cannot be opened is not in the page cache. The mapping must outlive this.
  PageCacheView(const std::string& path, std::span<const std::byte> mapped);
  ~PageCacheView();
  PageCacheView(PageCacheView&& other) noexcept;
  PageCacheView(const PageCacheView&) = delete;
  PageCacheView& operator=(const PageCacheView&) = delete;
  PageCacheView& operator=(PageCacheView&&) = delete;

  /// Bytes of [offset, offset + bytes) that are there: exact, or an estimate.
  uint64_t cached(uint64_t offset, uint64_t bytes) const;
  bool holds(uint64_t offset, uint64_t bytes) const { return bytes > 0 && cached(offset, bytes) == bytes; }
  const std::byte* data() const { return mapped_.data(); }

 private:
  std::span<const std::byte> mapped_;
  int fd_ = -1;  ///< for trying; -1: mincore answers, or nothing can be told
  bool exact_ = false;
};

}  // namespace moetier
