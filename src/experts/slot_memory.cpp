#include "experts/slot_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "experts/slot_layout.h"

namespace moetier {
namespace {

constexpr uint64_t kAlignment = uint64_t{2} << 20;   // of the cache: a huge page
constexpr uint64_t kMostRegion = uint64_t{1} << 30;  // bytes registered at once

/// Slots of several sizes leave gaps.
uint64_t most_cache_bytes(uint64_t bank_slot_bytes) {
  return bank_slot_bytes + bank_slot_bytes / 4 + kAlignment;
}

}  // namespace

uint64_t cache_share(uint64_t budget, uint64_t apart, uint64_t bank_slot_bytes) {
  return budget > apart ? std::min(budget - apart, most_cache_bytes(bank_slot_bytes)) : 0;
}

SlotMemory::SlotMemory(const EntryMap& map, uint64_t bank_slot_bytes, uint64_t budget, int64_t guesses)
    : wide_(widest_slot(map)),
      most_transit_(transit_slots(map, 0)),
      most_guesses_(guesses),
      bank_slot_bytes_(bank_slot_bytes),
      most_cache_(most_cache_bytes(bank_slot_bytes)) {
  const uint64_t homes = static_cast<uint64_t>(most_transit_ + most_guesses_) * wide_;
  cache_base_ = (homes + kAlignment - 1) / kAlignment * kAlignment;
  arena_.emplace(cache_base_ + most_cache_);
  free_.reserve(static_cast<size_t>(most_transit_));
  set_budget(budget);
}

void SlotMemory::set_budget(uint64_t bytes) {
  budget_ = bytes;
  transit_ = transit_slots(most_transit_, wide_, bytes);
  guesses_ = std::min(most_guesses_, static_cast<int64_t>(bytes / 8 / std::max<uint64_t>(wide_, 1)));
  const uint64_t apart = transit_bytes() + guess_bytes();
  if (bytes > 0 && bytes < wide_) {
    log::warn("a cache of {} cannot hold one expert of {}; one is kept in transit all the same, and nothing is cached",
              format_bytes(bytes), format_bytes(wide_));
  }
  cache_budget_ = cache_share(bytes, apart, bank_slot_bytes_);
  free_.clear();
  for (int64_t home = transit_ - 1; home >= 0; --home) free_.push_back(static_cast<int>(home));
}

std::optional<int> SlotMemory::take_home() {
  if (free_.empty()) return std::nullopt;
  const int home = free_.back();
  free_.pop_back();
  return home;
}

void SlotMemory::release_unused(uint64_t cache_bytes) {
  arena_->release(transit_bytes(), static_cast<uint64_t>(most_transit_ - transit_) * wide_);
  arena_->release(static_cast<uint64_t>(most_transit_ + guesses_) * wide_,
                  static_cast<uint64_t>(most_guesses_ - guesses_) * wide_);
  arena_->release(cache_base_ + cache_bytes, most_cache_ - cache_bytes);
}

void SlotMemory::register_with(ReadEngine& engine, uint64_t cache_bytes, bool lock) {
  if (cache_bytes > cache_budget_) {
    fail("the expert cache has taken {} of the {} it was given; this is a fault of the program",
         format_bytes(cache_bytes), format_bytes(cache_budget_));
  }
  std::vector<std::span<std::byte>> regions;
  const auto add = [&](std::byte* begin, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += kMostRegion)
      regions.emplace_back(begin + at, std::min(kMostRegion, bytes - at));
  };
  add(home(0), transit_bytes());
  add(guess_home(0), guess_bytes());
  add(cache_slot(0), cache_bytes);
  if (const std::string problem = engine.register_memory(regions); !problem.empty()) log::warn("{}", problem);
  if (!lock) return;
  if (const std::string problem = arena_->lock(cache_base_ + cache_bytes); !problem.empty()) log::warn("{}", problem);
}

}  // namespace moetier
