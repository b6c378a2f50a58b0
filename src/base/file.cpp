#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace moetier {
namespace {

constexpr size_t kWriteBuffer = size_t{1} << 20;  // bytes

/// Opens for reading and gives the size; closes and fails for anything that is not a regular file.
int open_regular(const std::string& path, uint64_t& size) {
  // A pipe is refused, not waited for; of regular files O_NONBLOCK changes nothing.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("cannot open {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail("cannot read {}: it is not a regular file", path);
  }
  size = static_cast<uint64_t>(info.st_size);
  return fd;
}

/// Where symbolic links lead, so that a link stays and what it names is replaced.
std::string resolved(const std::string& path) {
  constexpr int kMaxLinks = 40;
  std::filesystem::path at = path;
  std::error_code failed;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(at, failed); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(at, failed);
    if (failed) break;
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return at.string();
}

/// A file without a name in `folder`: nothing is left of it whatever ends the process. -1 where the file system has no
/// such files.
int open_nameless(const std::filesystem::path& folder) {
  if (::access("/proc/self/fd", X_OK) != 0) return -1;  // where it gets its name from in the end
  return ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/// Gives an open nameless file a name that is not taken yet; `name` ends in XXXXXX. False with errno set if that fails.
bool give_name(int fd, std::string& name) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string suffix = std::to_string(100000 + (::getpid() * 131 + attempt * 7919) % 900000);
    name.replace(name.size() - suffix.size(), suffix.size(), suffix);
    if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
    if (errno != EEXIST) return false;
  }
  return false;
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

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(resolved(path_)) {
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) fail("cannot write {}: it is a folder", path_);
  if (exists && !S_ISREG(info.st_mode)) {
    // A device or a pipe is written to, never replaced by a file of its name.
    direct_ = true;
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd_ < 0) fail("cannot open {}: {}", path_, std::strerror(errno));
  } else {
    temporary_ = target_ + ".XXXXXX";
    fd_ = open_nameless(std::filesystem::path(target_).parent_path());
    nameless_ = fd_ >= 0;
    if (!nameless_) fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
    if (fd_ < 0) fail("cannot create a file beside {}: {}", path_, std::strerror(errno));
    if (!nameless_) {
      const mode_t mask = ::umask(077);
      ::umask(mask);
      ::fchmod(fd_, 0666 & ~mask);
    }
  }
  buffer_.reserve(kWriteBuffer);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!direct_ && !nameless_) ::unlink(temporary_.c_str());
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
  if (!direct_ && ::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    fail("cannot write {}: {}", path_, std::strerror(errno));
  }
  if (nameless_ && !give_name(fd_, temporary_)) fail("cannot write {}: {}", path_, std::strerror(errno));
  nameless_ = false;
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  const int close_reason = errno;
  if (direct_ && closed) return;
  if (closed && ::rename(temporary_.c_str(), target_.c_str()) == 0) return;
  const int reason = closed ? errno : close_reason;
  if (!direct_) ::unlink(temporary_.c_str());
  fail("cannot {} {}: {}", closed ? "rename the finished file to" : "write", path_, std::strerror(reason));
}

}  // namespace moetier
