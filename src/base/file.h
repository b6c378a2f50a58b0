// Whole files: read, map, and write so that a failure loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace moetier {

/// Reads a file whole. Fails, naming the file, if it cannot be read or holds more than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);

/// A read-only mapping of a whole file. Movable, not copyable.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// Writes a file beside `path` and renames it over `path` on commit(): a reader sees the old file or the whole new one.
/// Without commit() the destructor removes what was written. A symbolic link stays and what it names is replaced; a
/// device or a pipe is written to directly. Errors name the file and the reason (e.g. no space left).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  uint64_t written() const { return written_; }
  void commit();

 private:
  void flush();
  std::string path_;    // as given, for messages
  std::string target_;  // with a symbolic link followed
  std::string temporary_, buffer_;
  int fd_ = -1;
  bool direct_ = false;    // a device or a pipe: no file beside it
  bool nameless_ = false;  // the new file has no name yet, so nothing is left of it if the process is ended
  uint64_t written_ = 0;
};

}  // namespace moetier
