#include "io/read_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/direct_check.h"

namespace moetier {
namespace {

/// One block; less at the file's end.
int64_t read_block(int fd, uint64_t offset, std::byte* to) {
  for (;;) {
    const ssize_t n = pread(fd, to, kReadBlock, static_cast<off_t>(offset));
    if (n >= 0) return n;
    if (errno != EINTR) return -errno;
  }
}

/// Reads the block with O_DIRECT, and leaves the descriptor so.
int64_t read_block_direct(int fd, uint64_t offset, std::byte* to) {
  if (fcntl(fd, F_SETFL, O_DIRECT) != 0) return -errno;
  return read_block(fd, offset, to);
}

int64_t read_block_buffered(int fd, uint64_t offset, std::byte* to) {
  if (fcntl(fd, F_SETFL, 0) != 0) return -errno;
  return read_block(fd, offset, to);
}

}  // namespace

ReadFile::ReadFile(const std::string& path, bool direct) : path_(path) {
  // Not to wait for the other end of a pipe; taken back below, for io_uring answers EAGAIN to reads of such a file.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("cannot open {}: {}", path, std::strerror(errno));
  struct stat facts {};
  const char* why = nullptr;
  if (fstat(fd_, &facts) != 0) {
    why = std::strerror(errno);
  } else if (!S_ISREG(facts.st_mode)) {
    why = "it is not a regular file";
  } else if (fcntl(fd_, F_SETFL, 0) != 0) {
    why = std::strerror(errno);
  }
  if (why != nullptr) {
    close(fd_);
    fail("cannot open {}: {}", path, why);
  }
  bytes_ = static_cast<uint64_t>(facts.st_size);
  if (!direct) return;
  if (fcntl(fd_, F_SETFL, O_DIRECT) != 0) {
    why_buffered_ = fmt::format("{} is read through the page cache: its file system has no direct reads ({})", path,
                                std::strerror(errno));
    return;
  }
  posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);  // the check shall not make the kernel read ahead
  const std::string differs = compare_reads(
      bytes_, [&](uint64_t offset, std::byte* to) { return read_block_buffered(fd_, offset, to); },
      [&](uint64_t offset, std::byte* to) { return read_block_direct(fd_, offset, to); });
  posix_fadvise(fd_, 0, 0, POSIX_FADV_NORMAL);
  direct_ = differs.empty() && fcntl(fd_, F_SETFL, O_DIRECT) == 0;
  if (direct_) return;
  fcntl(fd_, F_SETFL, 0);
  why_buffered_ = fmt::format("{} is read through the page cache: {}", path, differs);
}

ReadFile::~ReadFile() {
  if (fd_ >= 0) close(fd_);
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)),
      why_buffered_(std::move(other.why_buffered_)),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_),
      bytes_(other.bytes_) {}

void ReadFile::drop_from_page_cache(uint64_t offset, uint64_t bytes) const {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<off_t>::max());
  // 0 bytes would mean all of the file.
  if (bytes == 0 || offset > kMost || bytes > kMost - offset) return;
  posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

}  // namespace moetier
