// Telling the page cache what mapped bytes will be wanted, or that they are read in no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moetier {

/// What came of advice.
struct Advice {
  uint64_t calls = 0, bytes = 0;  ///< asked for, whole pages
  uint64_t failures = 0;          ///< of the calls
  int error = 0;                  ///< errno of the first that failed
  std::string reason() const;     ///< of that, in words
};

/// madvise(MADV_WILLNEED) on every page that [address, address + bytes) touches. The kernel cuts a call to the larger
/// of the device's read-ahead and its largest request (force_page_cache_ra in mm/readahead.c), so there is one call for
/// each `limit` bytes (BlockDevice::willneed_bytes()); 0 = not known: one call for all. Allocates nothing.
Advice advise_willneed(const std::byte* address, uint64_t bytes, uint64_t limit);

/// madvise(MADV_RANDOM) on the pages that lie whole in the range, so that a fault reads its own page and no more. What
/// it shares a page with may well be read in order.
Advice advise_random(const std::byte* address, uint64_t bytes);

/// Takes advise_random() back (MADV_NORMAL).
Advice advise_normal(const std::byte* address, uint64_t bytes);

/// Maps the pages that [address, address + bytes) touches, of which the page cache has all, with one system call
/// instead of a fault each (MADV_POPULATE_READ). Where the kernel has no such call nothing is lost.
void advise_map(const std::byte* address, uint64_t bytes);

/// madvise(MADV_DONTNEED) on the pages that lie whole in the range: this process maps them no more until it touches
/// them again. For read-only mappings of files.
Advice advise_unmap(const std::byte* address, uint64_t bytes);

}  // namespace moetier
