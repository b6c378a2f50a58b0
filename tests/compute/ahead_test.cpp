// What kernels fetch ahead.
#include "compute/cpu/ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace moetier::cpu {
namespace {

constexpr size_t kRowBytes = 512;
constexpr int64_t kRows = 64;  // 32 KiB, more than the second level is ahead

struct AheadTest : ::testing::Test {
  std::vector<std::byte> here = std::vector<std::byte>(kRowBytes * kRows), behind = here;

  WeightMatrix matrix(const std::byte* then) const { return {here.data(), kRowBytes, 1024, kRows, then}; }
};

TEST_F(AheadTest, IsFurtherOnInTheMatrix) {
  const Ahead ahead = ahead_of(matrix(behind.data()), 8, 8);
  EXPECT_EQ(ahead.next, here.data() + 16 * kRowBytes);
  EXPECT_EQ(ahead.further, ahead.next + kFurtherAhead);
}

TEST_F(AheadTest, GoesOnInWhatIsReadThen) {
  const Ahead near_end = ahead_of(matrix(behind.data()), 40, 8);
  EXPECT_EQ(near_end.next, here.data() + 48 * kRowBytes);
  EXPECT_EQ(near_end.further, behind.data() + (48 * kRowBytes + kFurtherAhead - here.size()));
  const Ahead at_end = ahead_of(matrix(behind.data()), 56, 8);
  EXPECT_EQ(at_end.next, behind.data());
  EXPECT_EQ(at_end.further, behind.data() + kFurtherAhead);
}

TEST_F(AheadTest, FetchesNothingNewWhereNothingIsKnownToFollow) {
  const Ahead near_end = ahead_of(matrix(nullptr), 40, 8);
  EXPECT_EQ(near_end.next, here.data() + 48 * kRowBytes);
  EXPECT_EQ(near_end.further, here.data() + 40 * kRowBytes);
  const Ahead at_end = ahead_of(matrix(nullptr), 56, 8);
  EXPECT_EQ(at_end.next, here.data() + 56 * kRowBytes);
  EXPECT_EQ(at_end.further, here.data() + 56 * kRowBytes);
}

}  // namespace
}  // namespace moetier::cpu
