// Files for the tests of io, in the test's directory.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "io/read_file.h"

namespace moetier::testing_support {

/// A directory of its own, removed with it. In the file system of the build tree, which more often than /tmp has direct
/// reads.
class TempFiles {
 public:
  TempFiles() {
    std::string name = (std::filesystem::current_path() / "io-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) name = testing::TempDir() + "io-test";
    path_ = name;
    std::filesystem::create_directories(path_);
  }
  ~TempFiles() { std::filesystem::remove_all(path_); }
  TempFiles(const TempFiles&) = delete;
  TempFiles& operator=(const TempFiles&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name(std::string_view file) const { return (path_ / file).string(); }

  /// A file of random bytes; its path.
  std::string make(std::string_view file, uint64_t bytes, uint64_t seed) const {
    std::string text(bytes, '\0');
    for (uint64_t i = 0; i < bytes; ++i) {
      if (i % 8 == 0) splitmix64(seed);
      text[i] = static_cast<char>(seed >> (i % 8 * 8));
    }
    std::ofstream(name(file), std::ios::binary) << text;
    // Else a direct read finds dirty pages to be written first.
    const int fd = open(name(file).c_str(), O_RDONLY | O_CLOEXEC);
    fsync(fd);
    close(fd);
    return name(file);
  }

 private:
  std::filesystem::path path_;
};

/// Memory at a multiple of kReadBlock.
class BlockMemory {
 public:
  explicit BlockMemory(uint64_t bytes)
      : bytes_((bytes + kReadBlock - 1) / kReadBlock * kReadBlock),
        data_(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{kReadBlock}))) {
    std::fill_n(data_, bytes_, std::byte{0xa5});
  }
  ~BlockMemory() { ::operator delete (data_, std::align_val_t{kReadBlock}); }
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  void clear() { std::fill_n(data_, bytes_, std::byte{0xa5}); }

 private:
  uint64_t bytes_;
  std::byte* data_;
};

/// What pread(2) says is at `offset` of a file: up to `bytes`.
inline std::vector<std::byte> bytes_at(const std::string& path, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t n = pread(fd, out.data(), bytes, static_cast<off_t>(offset));
  close(fd);
  out.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return out;
}

}  // namespace moetier::testing_support
