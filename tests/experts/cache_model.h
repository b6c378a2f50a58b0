// A naive model of what a store does with a cache table: memory is labels, and every rule is checked with plain sets.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "experts/cache_table.h"

namespace moetier {

class CacheModel {
 public:
  using Key = std::pair<int, int>;

  CacheModel(std::vector<LayerShape> shapes, std::unique_ptr<Policy> policy, std::unique_ptr<Slots> slots)
      : shapes_(shapes), table_(shapes, std::move(policy), std::move(slots)) {}

  CacheTable& table() { return table_; }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

  void visit(int layer, const std::vector<int32_t>& picks, int64_t rows) {
    const std::set<int32_t> distinct(picks.begin(), picks.end());
    std::set<int32_t> held;
    for (const int32_t e : table_.held(layer)) held.insert(e);
    const Visit& v = table_.visit(layer, picks, rows);
    apply(v);
    ASSERT_EQ(v.placements.size(), distinct.size());
    auto next = distinct.begin();
    for (const Placement& p : v.placements) {
      ASSERT_EQ(p.expert, *next++);
      const Key key{layer, p.expert};
      if (p.outcome == Outcome::hit) {
        ++hits_;
        EXPECT_EQ(label(p.slot), key);
        EXPECT_TRUE(held.count(p.expert) > 0 || filled_.count(key) > 0);
      } else {
        ++misses_;
        EXPECT_TRUE(held.count(p.expert) == 0 && filled_.count(key) == 0);
      }
      if (p.outcome == Outcome::admitted) write(p.slot, key);
      EXPECT_EQ(table_.holds(layer, p.expert), p.outcome != Outcome::bypassed);
    }
    check();
  }

  void apply(const Visit& v) {
    filled_.clear();
    for (const Move& m : v.moves) {
      const auto found = memory_.find(m.from);
      ASSERT_TRUE(found != memory_.end());
      const Key key = found->second.second;
      ASSERT_EQ(found->second.first, slot_bytes(key.first));
      write(m.to, key);
    }
    for (const Fill& f : v.fills) {
      write(f.slot, {f.layer, f.expert});
      filled_.insert({f.layer, f.expert});
    }
  }

  /// Everything held lies where the table last said, within the arena, and apart from everything else.
  void check() {
    const uint64_t capacity = table_.slots().capacity_bytes();
    std::map<Key, uint64_t> where;
    for (const auto& [slot, what] : memory_) where[what.second] = slot;
    uint64_t bytes = 0;
    int64_t count = 0;
    std::set<uint64_t> used;
    for (int layer = 0; layer < static_cast<int>(shapes_.size()); ++layer) {
      for (const int32_t e : table_.held(layer)) {
        bytes += shapes_[static_cast<size_t>(layer)].entry_bytes;
        ++count;
        const auto at = where.find({layer, e});
        ASSERT_TRUE(at != where.end()) << "layer " << layer << " expert " << e << " was overwritten";
        EXPECT_LE(at->second + slot_bytes(layer), capacity);
        EXPECT_TRUE(used.insert(at->second).second);
      }
    }
    EXPECT_EQ(bytes, table_.held_bytes());
    EXPECT_EQ(count, table_.held_count());
    EXPECT_LE(bytes, capacity);
    EXPECT_LE(table_.slots().taken_bytes(), capacity);
    EXPECT_LE(count, table_.slots().count());
  }

  /// The memory past the arena's end is given back.
  void cut(uint64_t capacity) {
    for (auto it = memory_.begin(); it != memory_.end();)
      it = it->first + it->second.first > capacity ? memory_.erase(it) : std::next(it);
  }

 private:
  uint64_t slot_bytes(int layer) const { return shapes_[static_cast<size_t>(layer)].slot_bytes; }
  Key label(uint64_t slot) const {
    const auto at = memory_.find(slot);
    return at == memory_.end() ? Key{-1, -1} : at->second.second;
  }
  /// Writes an entry: whatever it overlaps is gone, and so is an older copy.
  void write(uint64_t slot, Key key) {
    const uint64_t bytes = slot_bytes(key.first);
    for (auto it = memory_.begin(); it != memory_.end();) {
      const bool overlaps = it->first < slot + bytes && slot < it->first + it->second.first;
      it = overlaps || it->second.second == key ? memory_.erase(it) : std::next(it);
    }
    memory_[slot] = {bytes, key};
  }

  std::vector<LayerShape> shapes_;
  CacheTable table_;
  std::map<uint64_t, std::pair<uint64_t, Key>> memory_;  // by slot: bytes and what lies there
  std::set<Key> filled_;
  int64_t hits_ = 0, misses_ = 0;
};

}  // namespace moetier
