// Stores whose entries all have their place from the start: in the mapped file or in memory of our own. Nothing is
// moved; `advise` tells the page cache what will be wanted.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "experts/bulk_read.h"
#include "experts/store.h"
#include "io/read_engine.h"

namespace moetier {

/// All entries stay where the file is mapped: the page cache decides. The file must outlive the store. Every distinct
/// entry of a fetch counts as a hit, since no tier of ours was asked; what the page cache had to read is not seen here.
/// resident_bytes() asks mincore(2) how many of the entries' pages are in memory.
std::unique_ptr<ExpertStore> make_mapped_store(const GgufFile& file, EntryMap map);

struct AdviseOptions {
  bool hint = true;         ///< false: does all but the call (`noop`), for comparing
  bool random = false;      ///< turns the kernel's read-around off for entries (MADV_RANDOM)
  uint64_t call_bytes = 0;  ///< the most that the kernel honours in one call; 0 = not known: one call a slice
};
/// As the mapped store, but a fetch calls madvise(MADV_WILLNEED) on exactly the picked slices, first projections first
/// and once each, before anything is computed; of a prompt's layer some entries ahead of the one being computed.
std::unique_ptr<ExpertStore> make_advising_store(const GgufFile& file, EntryMap map, const AdviseOptions& options);

/// All entries are read into memory of our own when it is made, many reads at once; what `warm` has is copied instead.
/// `engine` reads the file's shards by their index. Errors: a read that fails, memory that cannot be had. `lock` keeps
/// them from being swapped out (a warning if that is refused).
std::unique_ptr<ExpertStore> make_resident_store(EntryMap map, ReadEngine& engine, std::span<const ReadFile> files,
                                                 bool lock, const WarmSource& warm = {});

/// For a file that the page cache has: an entry is first given where the file is mapped, so that a run begins at once,
/// and copied into memory of our own by `threads` threads when it is used again, which is faster from then on (that
/// memory has huge pages). The file must outlive the store. `files`, if given, are its shards: what has been copied is
/// then dropped from their page cache, so that the copies need no memory that is not there.
std::unique_ptr<ExpertStore> make_copying_store(const GgufFile& file, EntryMap map, int threads,
                                                std::vector<ReadFile> files = {});

}  // namespace moetier
