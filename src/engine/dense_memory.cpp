#include "engine/dense_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "experts/bulk_read.h"

namespace moetier {
namespace {

/// Reads a stretch of the file through the page cache, so that it is there.
void sweep(const ReadFile& file, uint64_t offset, uint64_t bytes, std::span<char> scratch) {
  while (bytes > 0) {
    const size_t want = std::min<uint64_t>(bytes, scratch.size());
    const ssize_t n = ::pread(file.fd(), scratch.data(), want, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_read(file, offset, want, n < 0 ? errno : ENODATA);
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

}  // namespace

std::vector<const TensorInfo*> dense_tensors(const GgufFile& file, const EntryMap& map) {
  std::set<std::pair<int, uint64_t>> stacks;
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& slice : layer.slices) stacks.emplace(slice.shard, slice.offset);
  }
  std::vector<const TensorInfo*> dense;
  for (const TensorInfo& tensor : file.tensors()) {
    if (block_number(tensor.name) >= map.executed) continue;  // never run
    if (tensor.bytes > 0 && !stacks.contains({tensor.shard, tensor.offset})) dense.push_back(&tensor);
  }
  std::ranges::sort(dense, {}, [](const TensorInfo* t) { return std::pair(t->shard, t->offset); });
  return dense;
}

uint64_t dense_bytes(const GgufFile& file, const EntryMap& map) {
  uint64_t sum = 0;
  for (const TensorInfo* tensor : dense_tensors(file, map)) sum += tensor->bytes;
  return sum;
}

DenseMemory warm_dense(const GgufFile& file, const EntryMap& map) {
  DenseMemory memory;
  Stopwatch watch;
  const std::vector<const TensorInfo*> tensors = dense_tensors(file, map);
  std::vector<char> scratch(size_t{1} << 20);
  const std::span<const GgufFile::Shard> shards = file.shards();
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const ReadFile buffered(shards[shard].path, false);
    for (const TensorInfo* tensor : tensors) {
      if (tensor->shard != static_cast<int>(shard)) continue;
      sweep(buffered, tensor->offset, tensor->bytes, scratch);
      memory.bytes += tensor->bytes;
    }
  }
  memory.seconds = watch.lap();
  log::info("dense warm-up: {} in {:.2f} s", format_bytes(memory.bytes), memory.seconds);
  return memory;
}

DenseMemory place_dense(GgufFile& file, const EntryMap& map, ReadEngine& engine, std::span<const ReadFile> files,
                        bool lock, const WarmSource& warm) {
  DenseMemory memory;
  Stopwatch watch;
  const std::vector<const TensorInfo*> tensors = dense_tensors(file, map);
  // Neighbours in the file stay neighbours, so that a few long reads bring them.
  std::vector<Stretch> stretches;
  std::vector<std::pair<size_t, uint64_t>> places;  // of each tensor: its stretch, and the offset in it
  for (const TensorInfo* tensor : tensors) {
    const bool joins = !stretches.empty() && stretches.back().file == tensor->shard &&
                       tensor->offset - (stretches.back().offset + stretches.back().bytes) < kReadBlock;
    if (!joins) stretches.push_back({tensor->shard, tensor->offset, 0, nullptr});
    Stretch& stretch = stretches.back();
    places.emplace_back(stretches.size() - 1, tensor->offset - stretch.offset);
    stretch.bytes = tensor->offset + tensor->bytes - stretch.offset;
  }
  uint64_t end = 0;
  std::vector<uint64_t> begins;
  for (const Stretch& stretch : stretches) {
    begins.push_back(end + stretch.offset % kReadBlock);
    end = (begins.back() + stretch.bytes + kReadBlock - 1) / kReadBlock * kReadBlock;
  }
  memory.arena.emplace(end);
  for (size_t i = 0; i < stretches.size(); ++i) stretches[i].to = memory.arena->data() + begins[i];
  memory.bytes = read_stretches(engine, files, stretches, {}, warm);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::byte* const at = stretches[places[i].first].to + places[i].second;
    file.relocate(*tensors[i], {at, tensors[i]->bytes});
  }
  if (lock) {
    if (const std::string problem = memory.arena->lock(end); !problem.empty()) log::warn("{}", problem);
  }
  memory.seconds = watch.lap();
  log::verbose("dense weights: {} read in {:.2f} s", format_bytes(memory.bytes), memory.seconds);
  return memory;
}

}  // namespace moetier
