// Builds GGUF bytes field by field, wrong ones included; shares nothing with the writer under test.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetier::test {

template <typename T>
std::string raw(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(T));
}
inline std::string raw_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  ///< of the data section
  std::string metadata, tensors, data;
  uint64_t n_metadata = 0, n_tensors = 0;

  /// `value` is the packed value, type id not included.
  RawGguf& kv(std::string_view key, uint32_t type, const std::string& value) {
    metadata += raw_string(key) + raw(type) + value;
    ++n_metadata;
    return *this;
  }
  RawGguf& kv_u32(std::string_view key, uint32_t value) { return kv(key, 4, raw(value)); }
  RawGguf& kv_array(std::string_view key, uint32_t element_type, uint64_t count, const std::string& elements) {
    return kv(key, 9, raw(element_type) + raw(count) + elements);
  }
  RawGguf& tensor(std::string_view name, const std::vector<int64_t>& shape, int32_t type, uint64_t offset) {
    tensors += raw_string(name) + raw(static_cast<uint32_t>(shape.size()));
    for (const int64_t size : shape) tensors += raw(size);
    tensors += raw(type) + raw(offset);
    ++n_tensors;
    return *this;
  }
  RawGguf& bytes(size_t n, char fill = 0) {
    data.append(n, fill);
    return *this;
  }
  std::string header() const { return magic + raw(version) + raw(n_tensors) + raw(n_metadata) + metadata + tensors; }
  std::string build() const {
    std::string out = header();
    if (alignment > 0) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A folder that is gone at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "moetier-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// What `action` throws, or "" if it does not; anything but an Error passes through and fails the test.
template <typename E, typename F>
std::string message_of(F action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace moetier::test
