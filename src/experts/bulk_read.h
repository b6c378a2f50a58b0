// Long stretches of a file into memory, in pieces and many at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "io/page_cache.h"
#include "io/read_engine.h"

namespace moetier {

/// [offset, offset + bytes) of a file, to a place in memory with the same remainder by kReadBlock; the blocks at both
/// ends are read whole, so up to kReadBlock - 1 bytes before and after the place are overwritten.
struct Stretch {
  int file = 0;
  uint64_t offset = 0, bytes = 0;
  std::byte* to = nullptr;
};

/// What the page cache has need not come from the drive: it is copied by all threads of `pool`, while reads of the rest
/// are under way.
struct WarmSource {
  std::span<const PageCacheView> views;  ///< by file
  ThreadPool* pool = nullptr;
};

/// Reads them all and returns the bytes read or copied. An error names the file and the reason.
uint64_t read_stretches(ReadEngine& engine, std::span<const ReadFile> files, std::span<const Stretch> stretches,
                        const std::function<void(uint64_t done, uint64_t total)>& progress = {},
                        const WarmSource& warm = {});

/// "cannot read 4.0 MiB at byte 8192 of FILE: reason" as an error.
[[noreturn]] void fail_read(const ReadFile& file, uint64_t offset, uint64_t bytes, int error);

}  // namespace moetier
