#include "io/advice.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moetier {
namespace {

uint64_t page_bytes() {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

void advise(Advice& advice, const std::byte* at, uint64_t bytes, int what) {
  ++advice.calls;
  advice.bytes += bytes;
  if (madvise(const_cast<std::byte*>(at), bytes, what) == 0) return;
  if (advice.failures++ == 0) advice.error = errno;
}

/// On the pages that lie whole in the range.
Advice advise_whole_pages(const std::byte* address, uint64_t bytes, int what) {
  Advice advice;
  const uint64_t page = page_bytes();
  const uint64_t skip = (page - reinterpret_cast<uintptr_t>(address) % page) % page;
  if (bytes < skip || bytes - skip < page) return advice;
  advise(advice, address + skip, (bytes - skip) / page * page, what);
  return advice;
}

}  // namespace

std::string Advice::reason() const {
  return std::strerror(error);
}

Advice advise_willneed(const std::byte* address, uint64_t bytes, uint64_t limit) {
  Advice advice;
  if (bytes == 0) return advice;
  const uint64_t page = page_bytes();
  const uint64_t lead = reinterpret_cast<uintptr_t>(address) % page;
  const std::byte* const first = address - lead;
  const uint64_t whole = (lead + bytes + page - 1) / page * page;
  const uint64_t piece = limit == 0 ? whole : std::max(limit / page * page, page);
  for (uint64_t at = 0; at < whole; at += piece) advise(advice, first + at, std::min(piece, whole - at), MADV_WILLNEED);
  return advice;
}

Advice advise_random(const std::byte* address, uint64_t bytes) {
  return advise_whole_pages(address, bytes, MADV_RANDOM);
}

Advice advise_normal(const std::byte* address, uint64_t bytes) {
  return advise_whole_pages(address, bytes, MADV_NORMAL);
}

void advise_map(const std::byte* address, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t lead = reinterpret_cast<uintptr_t>(address) % page_bytes();
#ifdef MADV_POPULATE_READ
  static_cast<void>(madvise(const_cast<std::byte*>(address - lead), lead + bytes, MADV_POPULATE_READ));
#else
  static_cast<void>(lead);
#endif
}

Advice advise_unmap(const std::byte* address, uint64_t bytes) {
  return advise_whole_pages(address, bytes, MADV_DONTNEED);
}

}  // namespace moetier
