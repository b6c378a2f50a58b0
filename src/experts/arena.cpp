#include "experts/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace moetier {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

Arena::Arena(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  mapped_ = round_up(bytes, kHugePage) + kHugePage;
  mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    fail("address space of {} for experts cannot be had: {}; choose a smaller cache, or another mode with --experts",
         format_bytes(bytes), std::strerror(errno));
  }
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
  // Fewer TLB misses; where there are no huge pages nothing is lost.
  static_cast<void>(::madvise(data_, round_up(bytes, kHugePage), MADV_HUGEPAGE));
}

Arena::~Arena() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

void Arena::release(uint64_t offset, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = round_up(offset, page);
  const uint64_t end = std::min(offset + bytes, round_up(bytes_, page)) / page * page;
  if (begin >= end) return;
  static_cast<void>(::munlock(data_ + begin, end - begin));  // locked pages would stay
  if (::madvise(data_ + begin, end - begin, MADV_DONTNEED) != 0) {
    fail("{} of expert memory cannot be given back: {}", format_bytes(end - begin), std::strerror(errno));
  }
}

std::string Arena::lock(uint64_t bytes) {
  if (bytes == 0 || ::mlock(data_, std::min(bytes, bytes_)) == 0) return {};
  const int reason = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return fmt::format(
      "{} of expert memory could not be locked ({}; the limit of locked memory is {}), so it may be swapped",
      format_bytes(bytes), std::strerror(reason),
      limit.rlim_cur == RLIM_INFINITY ? "none" : format_bytes(limit.rlim_cur));
}

}  // namespace moetier
