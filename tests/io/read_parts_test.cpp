// Short reads and calls to be repeated do not come to order: here they are told to a read one by one.
#include "io/read_parts.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "io/ring.h"

namespace moetier {
namespace {

ReadPart part_of(uint64_t bytes, uint64_t need) {
  return {.request = {.bytes = bytes, .need = need}};
}

TEST(ReadPart, GoesOnAfterAShortRead) {
  ReadPart part = part_of(8 * kReadBlock, 8 * kReadBlock);
  int error = -1;
  EXPECT_FALSE(part.take(3 * kReadBlock, true, &error));
  EXPECT_EQ(part.from, 3 * kReadBlock);
  EXPECT_EQ(part.next_bytes(), 5 * kReadBlock);
  EXPECT_FALSE(part.take(-EINTR, true, &error));
  EXPECT_FALSE(part.take(-EAGAIN, true, &error));
  EXPECT_FALSE(part.take(-ECANCELED, true, &error));
  EXPECT_EQ(part.from, 3 * kReadBlock);
  EXPECT_TRUE(part.take(5 * kReadBlock, true, &error));
  EXPECT_EQ(error, 0);
  EXPECT_EQ(part.got, 8 * kReadBlock);
}

TEST(ReadPart, ADirectReadGoesOnAtABlockAndABufferedOneWhereItStood) {
  int error = -1;
  ReadPart buffered = part_of(2 * kReadBlock, 2 * kReadBlock);
  EXPECT_FALSE(buffered.take(kReadBlock + 100, false, &error));
  EXPECT_EQ(buffered.from, kReadBlock + 100);
  EXPECT_TRUE(buffered.take(0, false, &error));
  EXPECT_EQ(error, ENODATA);

  ReadPart direct = part_of(2 * kReadBlock, 2 * kReadBlock);
  EXPECT_FALSE(direct.take(kReadBlock + 512, true, &error));
  EXPECT_EQ(direct.from, kReadBlock);
  EXPECT_TRUE(direct.take(512, true, &error)) << "the same again: the file ends there";
  EXPECT_EQ(error, ENODATA);
  EXPECT_EQ(direct.got, kReadBlock + 512);

  ReadPart torn = part_of(2 * kReadBlock, 2 * kReadBlock);
  EXPECT_FALSE(torn.take(kReadBlock + 512, true, &error));
  EXPECT_TRUE(torn.take(kReadBlock, true, &error)) << "there was more after all";
  EXPECT_EQ(error, 0);
}

TEST(ReadPart, WhatIsNeededIsEnough) {
  int error = -1;
  ReadPart part = part_of(4 * kReadBlock, 100);
  EXPECT_TRUE(part.take(100, true, &error));
  EXPECT_EQ(error, 0);
  ReadPart nothing = part_of(4 * kReadBlock, 0);
  EXPECT_TRUE(nothing.take(0, true, &error));
  EXPECT_EQ(error, 0);
}

TEST(ReadPart, ErrorsEndItAndTryingAgainHasAnEnd) {
  int error = -1;
  ReadPart part = part_of(kReadBlock, kReadBlock);
  EXPECT_TRUE(part.take(-EIO, true, &error));
  EXPECT_EQ(error, EIO);
  ReadPart stuck = part_of(kReadBlock, kReadBlock);
  int times = 1;
  while (!stuck.take(-EAGAIN, true, &error) && times < 100'000) ++times;
  EXPECT_EQ(error, EAGAIN);
  EXPECT_EQ(times, 1000);
}

TEST(ReadPart, OneCallAsksForNoMoreThanTheKernelTakes) {
  EXPECT_EQ(part_of(uint64_t{5} << 30, 0).next_bytes(), uint64_t{1} << 30);
}

TEST(Ring, KeepsTheOrderWhileItGrowsAndWraps) {
  Ring<int> ring;
  int in = 0, out = 0;
  for (int round = 1; round < 40; ++round) {
    for (int i = 0; i < round; ++i) ring.push(in++);
    if (round % 7 == 0) ring.reserve(ring.size() + 5);
    for (int i = 0; i < round - 1; ++i) EXPECT_EQ(ring.pop(), out++);
  }
  EXPECT_EQ(ring.size(), static_cast<size_t>(in - out));
  while (!ring.empty()) EXPECT_EQ(ring.pop(), out++);
  EXPECT_EQ(in, out);
  ring.push(1);
  ring.clear();
  EXPECT_TRUE(ring.empty());
}

TEST(BusyTime, RunsWhileAnythingIsInFlight) {
  BusyTime busy;
  EXPECT_EQ(busy.seconds(), 0);
  busy.begin();
  busy.begin();
  busy.end();
  const double one = busy.seconds();
  double later = one;
  for (int i = 0; i < 100'000'000 && later == one; ++i) later = busy.seconds();
  EXPECT_GT(later, one);
  busy.end();
  const double idle = busy.seconds();
  EXPECT_GE(idle, later);
  EXPECT_EQ(busy.seconds(), idle);
}

}  // namespace
}  // namespace moetier
