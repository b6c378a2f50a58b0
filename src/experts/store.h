// ExpertStore: asks for entries by (layer, expert), answers with where their bytes are. Knows no model and no kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "experts/entry_map.h"

namespace moetier {

/// One entry a lease holds. Slices are in the order of LayerEntries::slices.
struct FetchedEntry {
  int32_t expert = 0;
  std::array<const std::byte*, kMaxSlices> slices{};  ///< valid once the entry was given by next_ready() or try_ready()
};

struct StoreCounters {
  uint64_t hits = 0;  ///< picked entries that were in the tier asked, once per (ubatch, layer, expert)
  uint64_t misses = 0;
  uint64_t bytes_read = 0;
};

/// Holds the entries of one fetch in place until it is destroyed. At most one lease per store at a time in this
/// version.
class Lease {
 public:
  /// What a store implements to back a lease.
  class Source {
   public:
    virtual ~Source() = default;
    /// Blocks until an entry not yet given is ready; gives its index in entries(), or -1 when all have been given.
    virtual int next_ready() = 0;
    /// Never blocks: gives the index of an entry not yet given that is ready now, or -1 if there is none.
    virtual int try_ready() = 0;
    virtual void release() = 0;
  };
  Lease(Source* source, std::span<const FetchedEntry> entries) : source_(source), entries_(entries) {}
  ~Lease() {
    if (source_ != nullptr) source_->release();
  }
  Lease(Lease&& other) noexcept : source_(other.source_), entries_(other.entries_) { other.source_ = nullptr; }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Lease& operator=(Lease&&) = delete;

  std::span<const FetchedEntry> entries() const { return entries_; }  ///< distinct experts, ascending
  int next_ready() { return source_->next_ready(); }
  int try_ready() { return source_->try_ready(); }

 private:
  Source* source_;
  std::span<const FetchedEntry> entries_;
};

class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual const EntryMap& map() const = 0;
  /// Starts bringing every distinct expert among `picks` (ids, repeats allowed, [top_k x rows] in pick order) of the
  /// model's layer number `layer`. All misses are under way when it returns. Not to be called while another lease
  /// lives. Errors name a layer without experts or an id out of range.
  virtual Lease fetch(int layer, std::span<const int32_t> picks) = 0;
  virtual StoreCounters counters(int layer) const = 0;  ///< of one layer
  virtual StoreCounters counters() const = 0;           ///< of all
  /// Bytes of entries that are in memory now. 0 where the system does not tell.
  virtual uint64_t resident_bytes() const = 0;
};

/// All entries stay where the file is mapped: the page cache decides. The file must outlive the store. Every distinct
/// entry of a fetch counts as a hit, since no tier of ours was asked; what the page cache had to read is not seen here.
/// resident_bytes() asks mincore(2) how many of the entries' pages are in memory.
std::unique_ptr<ExpertStore> make_mapped_store(const GgufFile& file, EntryMap map);

}  // namespace moetier
