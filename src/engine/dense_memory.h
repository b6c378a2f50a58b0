// Where a model's dense weights live: everything that is no entry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experts/arena.h"
#include "experts/bulk_read.h"
#include "experts/entry_map.h"
#include "experts/residency.h"
#include "gguf/reader.h"
#include "io/read_engine.h"

namespace moetier {

/// The tensors of a file that are not entries of `map`.
std::vector<const TensorInfo*> dense_tensors(const GgufFile& file, const EntryMap& map);
uint64_t dense_bytes(const GgufFile& file, const EntryMap& map);

/// What the dense policy did; keeps the memory.
struct DenseMemory {
  std::optional<Arena> arena;  ///< of anon
  uint64_t bytes = 0;          ///< read or swept
  double seconds = 0;
};

/// The policy `anon`: reads the dense tensors into memory of our own and lets the file give them from there. To be
/// called before the model binds them. What `warm` has is copied and not read. `lock` keeps the memory from being
/// swapped out. Errors: a read that fails, memory that cannot be had.
DenseMemory place_dense(GgufFile& file, const EntryMap& map, ReadEngine& engine, std::span<const ReadFile> files,
                        bool lock, const WarmSource& warm = {});

/// The policy `warm`: reads them once through the page cache, in file order, so that it has them. Errors: a read that
/// fails.
DenseMemory warm_dense(const GgufFile& file, const EntryMap& map);

}  // namespace moetier
