// A model file opened for reading past the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moetier {

/// Direct reads begin and end at multiples of this many bytes, in the file and in memory.
inline constexpr uint64_t kReadBlock = 4096;

/// An open file. With `direct`, reads go past the page cache (O_DIRECT) if the file system has that and a block read so
/// equals the same block read through the cache, which is checked when it is opened (some network and user-space file
/// systems answer with other bytes). Otherwise reads are buffered, and why_buffered() says why. The descriptor keeps
/// the file that was opened, even if another takes its name.
class ReadFile {
 public:
  /// Errors: a file that cannot be opened or is no regular file.
  ReadFile(const std::string& path, bool direct);
  ~ReadFile();
  ReadFile(ReadFile&& other) noexcept;
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;
  ReadFile& operator=(ReadFile&&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  const std::string& why_buffered() const { return why_buffered_; }  ///< one sentence, or empty
  uint64_t bytes() const { return bytes_; }                          ///< when it was opened
  /// Tells the page cache that [offset, offset + bytes) will not be wanted (POSIX_FADV_DONTNEED): pages that no process
  /// has mapped are dropped.
  void drop_from_page_cache(uint64_t offset, uint64_t bytes) const;

 private:
  std::string path_, why_buffered_;
  int fd_ = -1;
  bool direct_ = false;
  uint64_t bytes_ = 0;
};

}  // namespace moetier
