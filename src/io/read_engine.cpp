#include "io/read_engine.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "io/read_parts.h"

namespace moetier {

uint64_t ReadPart::next_bytes() const {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  return std::min(request.bytes - from, kMost);
}

bool ReadPart::take(int64_t answer, bool direct, int* error) {
  constexpr int kMostAgain = 1000;
  *error = 0;
  if (answer < 0) {
    // ECANCELED: the thread that had submitted it has ended.
    const bool retry = answer == -EINTR || answer == -EAGAIN || answer == -ECANCELED;
    if (retry && ++again < kMostAgain) return false;
    *error = static_cast<int>(-answer);
    return true;
  }
  again = 0;
  const uint64_t reached = from + std::min(static_cast<uint64_t>(answer), request.bytes - from);
  const bool more = reached > got;
  got = std::max(got, reached);
  if (got >= request.need) return true;
  if (!more) {
    *error = ENODATA;
    return true;
  }
  // A direct read goes on at a block; behind the file's end it brings nothing new, and is over.
  from = direct ? got / kReadBlock * kReadBlock : got;
  return false;
}

void check_request(const ReadRequest& request, size_t files) {
  if (request.file < 0 || static_cast<size_t>(request.file) >= files) {
    fail("a read names file {} of {}", request.file, files);
  }
  if (request.need > request.bytes) fail("a read of {} bytes needs {}", request.bytes, request.need);
}

std::unique_ptr<ReadEngine> make_read_engine(const ReadEngineOptions& options, std::span<const ReadFile> files) {
  if (options.depth < 1 || options.depth > kMostDepth) {
    fail("a read engine's depth is 1 to {}, not {}", kMostDepth, options.depth);
  }
  if (options.lanes < 1 || options.lanes > kMostLanes) {
    fail("a read engine has 1 to {} lanes, not {}", kMostLanes, options.lanes);
  }
  if (options.kind == ReadKind::threads) return make_thread_engine(options.lanes, files);
  std::string why;
  if (auto engine = make_uring_engine(options.depth, files, &why)) return engine;
  if (options.kind == ReadKind::io_uring) fail("io_uring is not to be had ({}): choose threads for reading", why);
  log::warn("io_uring is not to be had ({}): {} threads read instead", why, options.lanes);
  return make_thread_engine(options.lanes, files);
}

}  // namespace moetier
