#include "io/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace moetier {
namespace {

/// mincore(2) tells the truth only to who owns the file or may write it.
bool mincore_answers(int fd, const std::string& path) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return false;
  return facts.st_uid == geteuid() || faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

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

PageCacheView::PageCacheView(const std::string& path, std::span<const std::byte> mapped) : mapped_(mapped) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  exact_ = mincore_answers(fd, path);
  if (exact_) {
    close(fd);
    return;
  }
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // what is tried shall bring no more than itself
  fd_ = fd;
}

PageCacheView::~PageCacheView() {
  if (fd_ >= 0) close(fd_);
}

PageCacheView::PageCacheView(PageCacheView&& other) noexcept
    : mapped_(other.mapped_), fd_(std::exchange(other.fd_, -1)), exact_(other.exact_) {}

uint64_t PageCacheView::cached(uint64_t offset, uint64_t bytes) const {
  if (bytes == 0 || offset > mapped_.size() || bytes > mapped_.size() - offset) return 0;
  if (exact_) return bytes_in_memory(mapped_.data() + offset, bytes);
  if (fd_ < 0) return 0;
  constexpr uint64_t kTries = 8;
  uint64_t there = 0;
  for (uint64_t i = 0; i < kTries; ++i) {
    char byte = 0;
    const iovec to{&byte, 1};
    const uint64_t at = offset + (bytes - 1) / (kTries - 1) * i;
    if (preadv2(fd_, &to, 1, static_cast<off_t>(at), RWF_NOWAIT) == 1) ++there;
  }
  return there == kTries ? bytes : bytes / kTries * there;
}

}  // namespace moetier
