// Plain reads of a file at a place, for what is small or read once.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/error.h"
#include "io/read_file.h"

namespace moetier {

/// As many bytes from `offset` on as there are, up to the buffer's size; returns how many. `file` must not be direct.
/// Errors: a read that fails.
inline size_t read_at(const ReadFile& file, std::span<char> to, uint64_t offset) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = ::pread(file.fd(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read {}: {}", file.path(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace moetier
