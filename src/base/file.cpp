#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace moetier {
namespace {

constexpr size_t kWriteBuffer = size_t{1} << 20;  // bytes

/// Opens for reading and gives the size; closes and fails for anything that is not a regular file.
int open_regular(const std::string& path, uint64_t& size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot open {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail("cannot read {}: it is not a regular file", path);
  }
  size = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

std::string read_file(const std::string& path, uint64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot open {}: {}", path, std::strerror(errno));
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      ::close(fd);
      fail("cannot read {}: {}", path, std::strerror(reason));
    }
    if (n == 0) break;
    text.append(chunk, static_cast<size_t>(n));
    if (text.size() > max_bytes) {
      ::close(fd);
      fail("cannot read {}: it is larger than {} bytes", path, max_bytes);
    }
  }
  ::close(fd);
  return text;
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  uint64_t size = 0;
  const int fd = open_regular(path, size);
  size_ = static_cast<size_t>(size);
  if (size_ > 0) {
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data_ == MAP_FAILED) {
      const int reason = errno;
      data_ = nullptr;
      ::close(fd);
      fail("cannot map {}: {}", path, std::strerror(reason));
    }
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) fail("cannot create a file beside {}: {}", path_, std::strerror(errno));
  ::fchmod(fd_, 0644);
  buffer_.reserve(kWriteBuffer);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(const void* data, size_t bytes) {
  written_ += bytes;
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t n = std::min(bytes, kWriteBuffer - buffer_.size());
    buffer_.append(from, n);
    from += n;
    bytes -= n;
    if (buffer_.size() == kWriteBuffer) flush();
  }
}

void AtomicFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot write {}: {}", path_, std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write {}: {}", path_, std::strerror(errno));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail("cannot write {}: {}", path_, std::strerror(reason));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail("cannot rename the finished file to {}: {}", path_, std::strerror(reason));
  }
}

}  // namespace moetier
