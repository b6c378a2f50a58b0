#include "io/page_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace moetier {

uint64_t bytes_in_memory(const std::byte* begin, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPagesPerCall = 4096;
  std::array<unsigned char, kPagesPerCall> present;
  const uint64_t lead = reinterpret_cast<uintptr_t>(begin) % page;
  const std::byte* const first_page = begin - lead;
  const uint64_t end = lead + bytes;  // offsets count from first_page
  uint64_t resident = 0;
  for (uint64_t at = 0; at < end; at += kPagesPerCall * page) {
    const uint64_t stop = std::min(end, at + kPagesPerCall * page);
    if (mincore(const_cast<std::byte*>(first_page + at), stop - at, present.data()) != 0) return 0;
    for (uint64_t p = at; p < stop; p += page) {
      if ((present[(p - at) / page] & 1) != 0) resident += std::min(end, p + page) - std::max(lead, p);
    }
  }
  return resident;
}

}  // namespace moetier
