#include "experts/bulk_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace moetier {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;  // bytes of one read

}  // namespace

void fail_read(const ReadFile& file, uint64_t offset, uint64_t bytes, int error) {
  if (error == ENODATA) {
    fail("cannot read {} at byte {} of {}: the file ends before; make it whole and load the model again",
         format_bytes(bytes), offset, file.path());
  }
  fail("cannot read {} at byte {} of {}: {}; check the drive and load the model again", format_bytes(bytes), offset,
       file.path(), std::strerror(error));
}

uint64_t read_stretches(ReadEngine& engine, std::span<const ReadFile> files, std::span<const Stretch> stretches,
                        const std::function<void(uint64_t done, uint64_t total)>& progress) {
  std::vector<ReadRequest> requests;
  uint64_t total = 0;
  for (const Stretch& stretch : stretches) {
    const uint64_t lead = stretch.offset % kReadBlock;
    const uint64_t end = lead + stretch.bytes;  // counted from the first block
    for (uint64_t at = 0; at < end; at += kPiece) {
      const uint64_t need = std::min(kPiece, end - at);
      ReadRequest request;
      request.file = stretch.file;
      request.offset = stretch.offset - lead + at;
      request.to = stretch.to - lead + at;
      request.bytes = (need + kReadBlock - 1) / kReadBlock * kReadBlock;
      request.need = need;
      request.tag = requests.size();
      total += request.bytes;
      requests.push_back(request);
    }
  }
  const auto window = static_cast<size_t>(std::max(engine.depth(), 1)) * 2;
  std::vector<ReadResult> results(window);
  size_t submitted = 0, finished = 0;
  uint64_t done = 0;
  while (finished < requests.size()) {
    const size_t room = std::min(window - (submitted - finished), requests.size() - submitted);
    engine.submit(std::span(requests).subspan(submitted, room));
    submitted += room;
    const size_t n = engine.wait(results);
    for (size_t i = 0; i < n; ++i) {
      const ReadRequest& request = requests[results[i].tag];
      if (results[i].error != 0) {
        engine.cancel();
        fail_read(files[static_cast<size_t>(request.file)], request.offset, request.need, results[i].error);
      }
      done += request.bytes;
    }
    finished += n;
    if (progress) progress(done, total);
  }
  return done;
}

}  // namespace moetier
