#include "experts/followers.h"

#include <gtest/gtest.h>

#include <vector>

namespace moetier {
namespace {

using Picks = std::vector<int32_t>;

TEST(Followers, CountsWhatComesNext) {
  Followers f(4, 2);
  f.note(Picks{0, 1});
  f.note(Picks{2, 3});
  f.note(Picks{0, 1});
  f.note(Picks{2, 0});
  EXPECT_EQ(f.leads(0), 2);
  EXPECT_EQ(f.follows(0, 2), 2);
  EXPECT_EQ(f.follows(0, 3), 1);
  EXPECT_EQ(f.follows(0, 0), 1);
  EXPECT_EQ(f.leads(2), 1);
  EXPECT_EQ(f.follows(2, 1), 1);
  EXPECT_EQ(f.follows(1, 1), 0);
}

TEST(Followers, ExpectsTheMeanOverTheLastPicksAndBacksOffToTheRates) {
  Followers f(3, 2);
  std::vector<double> chances(3);
  const std::vector<double> rates{0.1, 0.2, 0.3};
  f.note(Picks{0, 1});
  f.expect(rates, 4, chances);  // nothing followed yet
  EXPECT_EQ(chances, rates);
  f.note(Picks{2, 1});  // led by 0 and 1
  f.note(Picks{0, 1});  // led by 2 and 1
  f.expect(rates, 1, chances);
  // After 0: {1, 2} once of one; after 1: 1 twice, 2 and 0 once of two; the rate counts as one token more.
  EXPECT_NEAR(chances[0], ((0 + 0.1) / 2 + (1 + 0.1) / 3) / 2, 1e-12);
  EXPECT_NEAR(chances[1], ((1 + 0.2) / 2 + (2 + 0.2) / 3) / 2, 1e-12);
  EXPECT_NEAR(chances[2], ((1 + 0.3) / 2 + (1 + 0.3) / 3) / 2, 1e-12);
}

TEST(Followers, FollowsAChangeOfText) {
  Followers f(3, 1);
  for (int i = 0; i < 1000; ++i) f.note(Picks{i % 2});  // 0, 1, 0, 1 ...
  EXPECT_LE(f.leads(0), 255);
  EXPECT_EQ(f.follows(0, 1), f.leads(0));
  for (int i = 0; i < 1000; ++i) f.note(Picks{i % 2 == 0 ? 0 : 2});
  EXPECT_LT(f.follows(0, 1), f.leads(0) / 3);
  EXPECT_GT(f.follows(0, 2), f.leads(0) / 2);
}

TEST(Followers, TakesTokensWithoutPicks) {
  Followers f(2, 1);
  std::vector<double> chances(2, 9);
  f.note(Picks{});
  f.note(Picks{1});
  f.note(Picks{});
  f.expect(std::vector<double>{0.5, 0.5}, 4, chances);
  EXPECT_EQ(f.leads(1), 1);
  EXPECT_EQ(chances, (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace moetier
