#include "experts/bulk_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "io/advice.h"

namespace moetier {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;  // bytes of one read, or of one copy

struct Copy {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;
};

/// All stretches cut in pieces: those to be read, and those that the page cache has.
struct Pieces {
  std::vector<ReadRequest> reads;
  std::vector<Copy> copies;
  uint64_t total = 0;
};

Pieces cut(std::span<const Stretch> stretches, const WarmSource& warm) {
  Pieces pieces;
  for (const Stretch& stretch : stretches) {
    const uint64_t lead = stretch.offset % kReadBlock;
    const uint64_t end = lead + stretch.bytes;  // counted from the first block
    for (uint64_t at = 0; at < end; at += kPiece) {
      const uint64_t need = std::min(kPiece, end - at);
      const uint64_t offset = stretch.offset - lead + at;
      std::byte* const to = stretch.to - lead + at;
      if (warm.pool != nullptr) {
        const PageCacheView& view = warm.views[static_cast<size_t>(stretch.file)];
        if (view.holds(offset, need)) {
          pieces.copies.push_back({to, view.data() + offset, need});
          pieces.total += need;
          continue;
        }
      }
      ReadRequest request;
      request.file = stretch.file;
      request.offset = offset;
      request.to = to;
      request.bytes = (need + kReadBlock - 1) / kReadBlock * kReadBlock;
      request.need = need;
      request.tag = pieces.reads.size();
      pieces.total += request.bytes;
      pieces.reads.push_back(request);
    }
  }
  return pieces;
}

/// The reads of one call, so many at a time as keep the engine busy.
class Reader {
 public:
  Reader(ReadEngine& engine, std::span<const ReadFile> files, std::span<const ReadRequest> requests)
      : engine_(engine),
        files_(files),
        requests_(requests),
        results_(static_cast<size_t>(std::max(engine.depth(), 1)) * 2) {}

  bool finished() const { return finished_ == requests_.size(); }
  uint64_t done() const { return done_; }  ///< bytes

  void submit() {
    const size_t room = std::min(results_.size() - (submitted_ - finished_), requests_.size() - submitted_);
    engine_.submit(requests_.subspan(submitted_, room));
    submitted_ += room;
  }
  void reap(bool wait) {
    const size_t n = wait ? engine_.wait(results_) : engine_.poll(results_);
    for (size_t i = 0; i < n; ++i) {
      const ReadRequest& request = requests_[results_[i].tag];
      if (results_[i].error != 0) {
        engine_.cancel();
        fail_read(files_[static_cast<size_t>(request.file)], request.offset, request.need, results_[i].error);
      }
      done_ += request.bytes;
    }
    finished_ += n;
  }

 private:
  ReadEngine& engine_;
  std::span<const ReadFile> files_;
  std::span<const ReadRequest> requests_;
  std::vector<ReadResult> results_;
  size_t submitted_ = 0, finished_ = 0;
  uint64_t done_ = 0;
};

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
                        const std::function<void(uint64_t done, uint64_t total)>& progress, const WarmSource& warm) {
  const Pieces pieces = cut(stretches, warm);
  Reader reader(engine, files, pieces.reads);
  uint64_t copied = 0;
  const auto tell = [&] {
    if (progress) progress(reader.done() + copied, pieces.total);
  };
  // Between the copies, reads that came are followed by others.
  const std::span<const Copy> copies = pieces.copies;
  for (size_t at = 0; at < copies.size();) {
    reader.submit();
    const size_t n = std::min(copies.size() - at, static_cast<size_t>(warm.pool->size()) * 2);
    warm.pool->run(static_cast<int64_t>(n), [&](int64_t i, int) {
      const Copy& c = copies[at + static_cast<size_t>(i)];
      advise_map(c.from, c.bytes);
      std::memcpy(c.to, c.from, c.bytes);
      static_cast<void>(advise_unmap(c.from, c.bytes));  // not to count as this process's memory twice
    });
    for (size_t i = 0; i < n; ++i) copied += copies[at + i].bytes;
    at += n;
    if (!reader.finished()) reader.reap(false);
    tell();
  }
  while (!reader.finished()) {
    reader.submit();
    reader.reap(true);
    tell();
  }
  return reader.done() + copied;
}

}  // namespace moetier
