// Whether reads past the page cache can be trusted with a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace moetier {

/// Reads up to kReadBlock bytes at `offset` to `to`, which is a multiple of kReadBlock in memory; the bytes that came,
/// fewer only at the file's end, or a negative errno.
using BlockReader = std::function<int64_t(uint64_t offset, std::byte* to)>;

/// Compares the first block, the last whole block and what lies behind it, read past the page cache and through it.
/// Empty if they are equal; else what differs, as the end of a sentence.
std::string compare_reads(uint64_t file_bytes, const BlockReader& buffered, const BlockReader& direct);

}  // namespace moetier
