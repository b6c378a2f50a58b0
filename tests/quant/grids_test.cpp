#include "quant/grids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace moetier {
namespace {

/// FNV-1a over the elements in order.
template <typename Row, size_t kRows>
uint64_t hash(const Row (&grid)[kRows]) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const Row row : grid) {
    for (size_t j = 0; j < sizeof(Row); ++j) h = (h ^ (row >> (8 * j) & 0xff)) * 0x100000001b3u;
  }
  return h;
}

/// The values are of the formats' tables, read out of stock llama.cpp by decoding every row.
TEST(Grids, AreThoseOfTheFormats) {
  EXPECT_EQ(hash(grids().iq2_xxs), 0xbb4ee025b5ac6e8eu);
  EXPECT_EQ(hash(grids().iq2_xs), 0xc9b1ee61e79909bdu);
  EXPECT_EQ(hash(grids().iq2_s), 0x123edd38a3b62b90u);
  EXPECT_EQ(hash(grids().iq3_xxs), 0xdfa5dc83d6a155d5u);
  EXPECT_EQ(hash(grids().iq3_s), 0xfa37020c25b44829u);
  EXPECT_EQ(hash(grids().iq1), 0x81c12ae918d508cdu);
}

TEST(Grids, HaveNoRowTwice) {
  const auto expect_distinct = [](const auto& grid) {
    EXPECT_EQ(std::set(std::begin(grid), std::end(grid)).size(), std::size(grid));
  };
  expect_distinct(grids().iq2_xxs);
  expect_distinct(grids().iq2_xs);
  expect_distinct(grids().iq2_s);
  expect_distinct(grids().iq3_xxs);
  expect_distinct(grids().iq3_s);
  expect_distinct(grids().iq1);
}

}  // namespace
}  // namespace moetier
