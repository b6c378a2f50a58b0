// Slots: every slice of every expert lands whole, on blocks, without touching its neighbour.
#include "experts/slot_layout.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "experts/slot_memory.h"
#include "io/read_file.h"

namespace moetier {
namespace {

LayerEntries layer(std::vector<std::pair<uint64_t, uint64_t>> offset_and_bytes, int experts) {
  LayerEntries entries;
  entries.n_expert = experts;
  entries.top_k = 2;
  for (const auto& [offset, bytes] : offset_and_bytes) {
    SliceSource slice;
    slice.offset = offset;
    slice.slice_bytes = bytes;
    entries.slices.push_back(slice);
  }
  return entries;
}

TEST(SlotLayout, CoversEverySliceWithWholeBlocksThatDoNotMeet) {
  Xoshiro256 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<uint64_t, uint64_t>> slices;
    const uint64_t n = 1 + random.next_starstar() % 3;
    for (uint64_t s = 0; s < n; ++s)
      slices.emplace_back(random.next_starstar() % 100000 * 32, 32 + random.next_starstar() % 1000 * 32);
    const LayerEntries entries = layer(slices, 9);
    const SlotLayout layout(entries);
    EXPECT_EQ(layout.slot_bytes() % kReadBlock, 0u);
    uint64_t least = 0;
    for (int e = 0; e < 9; ++e) {
      uint64_t end = 0;
      for (size_t s = 0; s < n; ++s) {
        const SliceRead read = layout.slice(e, s);
        const uint64_t begin = slices[s].first + static_cast<uint64_t>(e) * slices[s].second;
        EXPECT_EQ(read.offset % kReadBlock, 0u);
        EXPECT_EQ(read.bytes % kReadBlock, 0u);
        EXPECT_EQ(read.offset + read.lead, begin);
        EXPECT_EQ(read.need, read.lead + slices[s].second);
        EXPECT_LT(read.bytes - read.need, kReadBlock);
        EXPECT_GE(read.place, end);
        end = read.place + read.bytes;
      }
      EXPECT_LE(end, layout.slot_bytes());
      least = std::max(least, end);
    }
    EXPECT_LE(layout.slot_bytes(), least + n * kReadBlock);
  }
}

TEST(SlotLayout, TransitTakesNoMoreThanHalfOfTheBudget) {
  EntryMap map;
  map.layers.push_back(layer({{0, 4096 * 3}}, 16));
  map.layers.back().top_k = 8;
  const uint64_t slot = widest_slot(map);
  EXPECT_EQ(slot, 3 * kReadBlock);
  EXPECT_EQ(transit_slots(map, 0), 8);
  EXPECT_EQ(transit_slots(map, 1), 1);
  EXPECT_EQ(transit_slots(map, 4 * slot), 2);
  EXPECT_EQ(transit_slots(map, 16 * slot), 8);
  EXPECT_EQ(transit_slots(map, 1000 * slot), 8);
}

TEST(SlotMemory, SplitsTheBudgetWithoutExceedingIt) {
  EntryMap map;
  map.layers.push_back(layer({{32, 9000 / 32 * 32}}, 16));
  map.layers.back().top_k = 4;
  const uint64_t slot = widest_slot(map);
  for (uint64_t budget = 2 * slot; budget < 40 * slot; budget += slot / 3) {
    SlotMemory memory(map, 16 * slot, budget, 5);
    EXPECT_LE(memory.transit_bytes() + memory.guess_bytes() + memory.cache_budget(), budget);
    EXPECT_LE(memory.guess_bytes(), budget / 8);
    std::vector<int> homes;
    while (const auto home = memory.take_home()) homes.push_back(*home);
    EXPECT_EQ(homes.size() * slot, memory.transit_bytes());
    memory.set_budget(0);
    EXPECT_EQ(memory.cache_budget(), 0u);
    EXPECT_EQ(memory.transit_bytes(), 4 * slot);
  }
}

}  // namespace
}  // namespace moetier
