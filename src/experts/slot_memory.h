// The memory of a streaming store: homes in transit, homes for guesses, and the cache, all within one budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experts/arena.h"
#include "experts/entry_map.h"
#include "io/read_engine.h"

namespace moetier {

/// What the cache's slots get of a budget when homes take `apart` of it; `bank_slot_bytes`: slots for every entry.
uint64_t cache_share(uint64_t budget, uint64_t apart, uint64_t bank_slot_bytes);

/// Splits a budget and keeps the memory. The cache's slots are offsets from cache_slot(0).
///
///     | homes in transit | homes for guesses | cache ...             |
///
/// Address space is reserved for the whole bank, since the budget may grow; only what is used takes memory.
class SlotMemory {
 public:
  /// `guesses`: homes that speculation would like; it gets at most an eighth of the budget.
  SlotMemory(const EntryMap& map, uint64_t bank_slot_bytes, uint64_t budget, int64_t guesses);

  /// Another budget, for which guess_homes() may change too. Nothing may be registered and nothing in flight. Call
  /// release_unused() once the cache keeps to it.
  void set_budget(uint64_t bytes);
  uint64_t budget() const { return budget_; }
  uint64_t cache_budget() const { return cache_budget_; }  ///< what is left for the cache's slots
  uint64_t most_cache() const { return most_cache_; }      ///< bytes of slots that the address space has room for
  int64_t guess_homes() const { return guesses_; }
  uint64_t transit_bytes() const { return static_cast<uint64_t>(transit_) * wide_; }
  uint64_t guess_bytes() const { return static_cast<uint64_t>(guesses_) * wide_; }

  std::optional<int> take_home();
  void give_home(int home) { free_.push_back(home); }
  std::byte* home(int home) { return arena_->data() + static_cast<uint64_t>(home) * wide_; }
  std::byte* guess_home(int home) { return this->home(static_cast<int>(most_transit_) + home); }
  std::byte* cache_slot(uint64_t slot) { return arena_->data() + cache_base_ + slot; }

  /// Gives back what neither the homes nor a cache of `cache_bytes` use.
  void release_unused(uint64_t cache_bytes);
  /// Tells the engine where reads land and, if `lock`, keeps that from being swapped out; what is refused is a warning.
  void register_with(ReadEngine& engine, uint64_t cache_bytes, bool lock);

 private:
  uint64_t wide_;  ///< bytes of a home
  int64_t most_transit_, most_guesses_, transit_ = 0, guesses_ = 0;
  uint64_t bank_slot_bytes_;
  uint64_t budget_ = 0, cache_budget_ = 0, cache_base_ = 0, most_cache_ = 0;
  std::optional<Arena> arena_;
  std::vector<int> free_;
};

}  // namespace moetier
