#include "io/direct_check.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "io/read_file.h"

namespace moetier {

std::string compare_reads(uint64_t file_bytes, const BlockReader& buffered, const BlockReader& direct) {
  struct alignas(kReadBlock) Block {
    std::array<std::byte, kReadBlock> bytes;
  };
  const auto pair = std::make_unique<std::array<Block, 2>>();
  Block &cached = (*pair)[0], &past = (*pair)[1];
  const uint64_t whole = file_bytes / kReadBlock;
  for (const uint64_t block : std::set<uint64_t>{0, whole == 0 ? 0 : whole - 1, whole}) {
    const uint64_t offset = block * kReadBlock;
    if (offset >= file_bytes) continue;
    const int64_t want = buffered(offset, cached.bytes.data());
    if (want < 0) return fmt::format("byte {} cannot be read ({})", offset, std::strerror(static_cast<int>(-want)));
    const int64_t got = direct(offset, past.bytes.data());
    if (got < 0) {
      return fmt::format("a direct read at byte {} failed ({})", offset, std::strerror(static_cast<int>(-got)));
    }
    if (got != want) return fmt::format("a direct read at byte {} gave {} bytes instead of {}", offset, got, want);
    if (std::memcmp(cached.bytes.data(), past.bytes.data(), static_cast<size_t>(got)) != 0) {
      return fmt::format("a direct read at byte {} gave other bytes than a buffered one", offset);
    }
  }
  return "";
}

}  // namespace moetier
