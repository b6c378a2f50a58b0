// The store that streams: a cache of slots in memory, filled by direct reads from the file.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "experts/store.h"
#include "io/read_engine.h"

namespace moetier {

struct StreamOptions {
  uint64_t budget_bytes = 0;  ///< of the cache, transit and speculation included; 0 = transit only
  CachePolicy policy = CachePolicy::standard;
  /// (layer, expert) by the model's layer numbers, hottest first: the cache is filled from it.
  std::vector<std::pair<int, int>> profile;
  bool overlap = true;
  bool load_all = false;
  int prefetch = 0;   ///< layers ahead
  bool lock = false;  ///< keep slots from being swapped out
};

using ReadEngineMaker = std::function<std::unique_ptr<ReadEngine>(std::span<const ReadFile>)>;

/// `files`: the model's shards by index; they are watched: a file that was changed or cut short while it is open is an
/// error of the next fetch. Errors: memory that cannot be had, a read of the profile's entries that fails.
std::unique_ptr<ExpertStore> make_stream_store(EntryMap map, std::vector<ReadFile> files, const ReadEngineMaker& engine,
                                               const StreamOptions& options);

}  // namespace moetier
