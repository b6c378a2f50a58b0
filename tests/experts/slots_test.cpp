#include "experts/slots.h"

#include <gtest/gtest.h>

#include <set>

#include "experts/slot_classes.h"

namespace moetier {
namespace {

constexpr uint64_t kBlock = 4096;

LayerShape layer(int experts, uint64_t blocks) {
  return {experts, 2, blocks * kBlock - 7, blocks * kBlock};
}

TEST(SlotClasses, LayersWithinAnEighthShareASize) {
  const std::vector<LayerShape> shapes = {layer(4, 80), layer(4, 90), layer(4, 81), layer(4, 71), layer(4, 72)};
  const SlotClasses classes(shapes);
  ASSERT_EQ(classes.slot_bytes.size(), 2u);
  EXPECT_EQ(classes.slot_bytes[0], 90 * kBlock);
  EXPECT_EQ(classes.slot_bytes[1], 72 * kBlock);
  EXPECT_EQ(classes.class_of, (std::vector<int>{0, 0, 0, 1, 1}));
  EXPECT_EQ(classes.bank_slots, (std::vector<uint64_t>{12, 8}));
}

TEST(SlotClasses, AnExtentLosesLittleToAnyClass) {
  // The two sizes of a 30B model's entries.
  const std::vector<LayerShape> shapes = {{128, 8, 3059712, 3059712}, {128, 8, 2654208, 2654208}};
  const SlotClasses classes(shapes);
  for (const uint64_t slot : classes.slot_bytes)
    EXPECT_LT(static_cast<double>(classes.extent_bytes % slot), 0.02 * static_cast<double>(classes.extent_bytes));
  EXPECT_LE(classes.extent_bytes, uint64_t{64} << 20);
}

TEST(ExtentSlots, HandsOutEveryByteOfASmallBudgetOnce) {
  const std::vector<LayerShape> shapes = {layer(16, 3)};
  const auto slots = make_extent_slots(shapes, 5 * 3 * kBlock + 100, whole_bank_bytes(shapes));
  std::set<uint64_t> given;
  for (int i = 0; i < 5; ++i) {
    const auto slot = slots->take(0, i);
    ASSERT_TRUE(slot.has_value());
    EXPECT_EQ(*slot % (3 * kBlock), 0u);
    EXPECT_LE(*slot + 3 * kBlock, slots->capacity_bytes());
    EXPECT_TRUE(given.insert(*slot).second);
  }
  EXPECT_FALSE(slots->take(0, 5).has_value());
  EXPECT_EQ(slots->count(), 5);
  slots->give_back(0, *given.begin());
  EXPECT_EQ(slots->take(0, 6), *given.begin());
  EXPECT_THROW(slots->give_back(0, 7 * 3 * kBlock), std::exception);
}

TEST(ExtentSlots, NeverTakeMoreThanTheBankNeeds) {
  const std::vector<LayerShape> shapes = {layer(4, 2), layer(4, 9)};
  const auto slots = make_extent_slots(shapes, uint64_t{1} << 40, uint64_t{1} << 40);
  EXPECT_EQ(slots->capacity_bytes(), whole_bank_bytes(shapes));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(slots->take(i / 4, i).has_value());
}

TEST(ExtentSlots, AnExtentChangesItsClass) {
  const std::vector<LayerShape> shapes = {layer(64, 6), layer(64, 4)};
  const uint64_t extent = SlotClasses(shapes).extent_bytes;
  const auto in_extent = static_cast<int>(extent / (4 * kBlock));
  const auto slots = make_extent_slots(shapes, 2 * extent, 2 * extent);
  std::vector<uint64_t> small;
  for (int i = 0; i < 2 * in_extent; ++i) small.push_back(slots->take(1, i).value());
  EXPECT_FALSE(slots->take(0, 100).has_value());
  std::vector<Relocation> moves;
  EXPECT_FALSE(slots->convert(1, 0, moves));
  // Every other one goes: the survivors fit into one extent.
  for (int i = 0; i < 2 * in_extent; i += 2) slots->give_back(1, small[static_cast<size_t>(i)]);
  ASSERT_TRUE(slots->convert(1, 0, moves));
  EXPECT_EQ(moves.size(), static_cast<size_t>(in_extent / 2));
  std::set<uint64_t> places;
  for (int i = 1; i < 2 * in_extent; i += 2) places.insert(small[static_cast<size_t>(i)]);
  for (const Relocation& m : moves) {
    EXPECT_EQ(m.bytes, 4 * kBlock);
    EXPECT_EQ(places.erase(m.from), 1u);
    EXPECT_TRUE(places.insert(m.to).second);
  }
  const auto wide = slots->take(0, 100);
  ASSERT_TRUE(wide.has_value());
  for (const uint64_t place : places) EXPECT_TRUE(place + 4 * kBlock <= *wide || *wide + 6 * kBlock <= place);
  EXPECT_EQ(slots->free_count(1), in_extent - static_cast<int>(places.size()));
}

TEST(ByteSlots, CountPayloadOnly) {
  const std::vector<LayerShape> shapes = {{4, 1, 100, 4096}, {4, 1, 300, 4096}};
  const auto slots = make_byte_slots(shapes, 450);
  EXPECT_TRUE(slots->take(1, 0).has_value());
  EXPECT_TRUE(slots->take(0, 1).has_value());
  EXPECT_FALSE(slots->take(0, 2).has_value());
  EXPECT_EQ(slots->taken_bytes(), 400u);
  slots->give_back(1, 0);
  EXPECT_TRUE(slots->take(0, 2).has_value());
}

}  // namespace
}  // namespace moetier
