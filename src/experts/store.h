// ExpertStore: asks for entries by (layer, expert), answers with where their bytes are. Knows no model and no kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experts/entry_map.h"
#include "experts/residency.h"

namespace moetier {

/// One entry a lease holds. Slices are in the order of LayerEntries::slices: `down` is the last.
struct FetchedEntry {
  int32_t expert = 0;
  std::array<const std::byte*, kMaxSlices> slices{};  ///< valid from when the entry was given as ready until done()
};

/// In which order a lease gives its entries.
enum class FetchOrder : uint8_t {
  any,        ///< as they come: hits first, and each miss perhaps twice, first without its last slice
  ascending,  ///< by expert id, each once and complete
};

/// An entry that can be computed with. index -1: none.
struct Ready {
  int index = -1;         ///< in entries()
  bool complete = false;  ///< false: all slices but the last are there; it will be given again
  explicit operator bool() const { return index >= 0; }
};

/// Counters since the store was made, or since reset_counters(). What a store cannot know stays 0.
struct StoreCounters {
  // Distinct experts per (ubatch, layer), ubatches of up to 32 rows.
  uint64_t hits = 0, misses = 0;
  uint64_t few_hits = 0, few_misses = 0;  ///< of them: ubatches of up to kFewRows rows
  uint64_t hits_profile = 0;              ///< of hits: put there by the profile and never evicted since
  // Of larger ubatches.
  uint64_t large_hits = 0, large_hit_bytes = 0, large_misses = 0;
  uint64_t evictions = 0;
  uint64_t rereads = 0;                          ///< misses of entries that had been read before
  uint64_t swaps = 0;                            ///< entries the policy brought in between tokens
  uint64_t reads = 0;                            ///< entries read from the file, for whatever reason
  uint64_t bytes_read = 0;                       ///< from the file, whole blocks
  uint64_t speculated = 0, speculated_used = 0;  ///< entries read ahead, and those of them that were then picked
  uint64_t speculated_bytes = 0;
  StoreCounters& operator+=(const StoreCounters& other);
  StoreCounters operator-(const StoreCounters& before) const;
};

/// What a store cost, in seconds, and what it told the page cache.
struct StoreMeters {
  double read_wait_seconds = 0;  ///< blocked until a read came
  double manage_seconds = 0;     ///< bookkeeping, submitting and reaping reads, without the wait
  uint64_t advise_calls = 0, advise_bytes = 0, advise_failures = 0;
  double advise_seconds = 0;
  uint64_t copied_bytes = 0;  ///< of entries, from the page cache when they were used again
  double copy_seconds = 0;
  StoreMeters& operator+=(const StoreMeters& other);
  StoreMeters operator-(const StoreMeters& before) const;
};

/// What a store is, for records and log lines.
struct StoreStatus {
  ExpertMode mode = ExpertMode::mmap;  ///< never automatic
  std::string policy;                  ///< of the cache; empty without one
  bool cached = false;                 ///< a cache of slots: the cache statistics describe it
  uint64_t budget_bytes = 0;           ///< what the cache may take, transit included
  uint64_t arena_bytes = 0;            ///< what it has taken
  uint64_t transit_bytes = 0;
  int64_t slots = 0;
  uint64_t prefilled = 0;  ///< slots that a profile filled
  uint64_t token_demand_bytes = 0, layer_demand_bytes = 0;
  std::string io;  ///< e.g. "io_uring, direct, depth 16"; empty without reads
  bool advising = false;
};

/// Holds the entries of one fetch in place until it is destroyed. At most one lease per store at a time.
class Lease {
 public:
  /// What a store implements to back a lease.
  class Source {
   public:
    virtual ~Source() = default;
    /// Blocks until something not yet given is ready; index -1 when everything has been given. A read that failed is an
    /// error that names the file; the lease can then only be destroyed.
    virtual Ready next_ready() = 0;
    /// Never blocks: something not yet given that is ready now, or index -1.
    virtual Ready try_ready() = 0;
    /// The entry was computed: where it lay may be used for the next.
    virtual void done(int index) = 0;
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
  Ready next_ready() { return source_->next_ready(); }
  Ready try_ready() { return source_->try_ready(); }
  /// Must be called for every complete entry before next_ready() is called again: there may be fewer homes for entries
  /// in transit than entries.
  void done(int index) { source_->done(index); }

 private:
  Source* source_;
  std::span<const FetchedEntry> entries_;
};

class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual const EntryMap& map() const = 0;
  virtual StoreStatus status() const = 0;
  /// Starts bringing every distinct expert among `picks` (ids, repeats allowed, [top_k x rows] in pick order) of the
  /// model's layer number `layer`. As many misses as there are homes for are under way when it returns. Not to be
  /// called while another lease lives. Errors name a layer without experts or an id out of range.
  virtual Lease fetch(int layer, std::span<const int32_t> picks, int64_t rows, FetchOrder order) = 0;
  /// True if the entry could be computed at once.
  virtual bool holds(int layer, int expert) const = 0;
  /// True if the entry is not held, but a read ahead of the router has brought it or is bringing it.
  virtual bool read_ahead(int layer, int expert) const;
  /// Entries held in a layer now, ascending.
  virtual std::vector<int32_t> held(int layer) const = 0;
  virtual StoreCounters counters(int layer) const = 0;  ///< of one layer
  virtual StoreCounters counters() const = 0;           ///< of all
  virtual const StoreMeters& meters() const = 0;
  /// Bytes of entries that are in memory now. 0 where the system does not tell.
  virtual uint64_t resident_bytes() const = 0;
  /// Gives the cache another budget, transit included, and evicts at once. Not while a lease lives. An error for stores
  /// without a cache.
  virtual void set_budget(uint64_t bytes);
  /// At most `max_swaps` swaps of the adaptive policy now; their number, or -1 without such a policy.
  virtual int rebalance(int max_swaps);
};

}  // namespace moetier
