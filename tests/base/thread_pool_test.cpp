#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace moetier {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryChunkOnceInManyRounds) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int round = 0; round < 300; ++round) {
    const int64_t n = round % 37;
    std::vector<int> seen(static_cast<size_t>(n),
                          0);  // plain ints: a chunk run twice at once is a race for TSan to see
    pool.run(n, [&](int64_t chunk, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, pool.size());
      ++seen[static_cast<size_t>(chunk)];
    });
    EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), n);
    for (const int count : seen) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, WhatChunksWroteIsSeenAfterwards) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(1000, 0);
  for (int64_t round = 0; round < 50; ++round) {
    pool.run(1000, [&](int64_t chunk, int) { values[static_cast<size_t>(chunk)] += chunk * round; });
  }
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i * 49 * 50 / 2);
}

TEST_P(ThreadPoolTest, RethrowsTheFirstExceptionAfterAllChunksEnded) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    try {
      pool.run(40, [&](int64_t chunk, int) {
        ++ended;
        if (chunk % 7 == 3) throw std::runtime_error("chunk " + std::to_string(chunk));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(std::string(e.what()).rfind("chunk ", 0), 0u);
    }
    EXPECT_EQ(ended, 40);
  }
  int after = 0;
  pool.run(1, [&](int64_t, int) { ++after; });
  EXPECT_EQ(after, 1);
}

TEST_P(ThreadPoolTest, SleepingWorkersWakeUp) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than workers spin
    std::atomic<int> count{0};
    std::atomic<int> inside{0};
    pool.run(GetParam(), [&](int64_t, int) {
      // Every chunk waits until all are held at once, so each must have its own thread.
      ++inside;
      while (inside < GetParam()) std::this_thread::yield();
      ++count;
    });
    EXPECT_EQ(count, GetParam());
  }
}

TEST_P(ThreadPoolTest, AThreadIndexIsNeverInTwoChunksAtOnce) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> busy(static_cast<size_t>(GetParam()));
  std::atomic<int> clashes{0};
  pool.run(2000, [&](int64_t, int thread) {
    if (busy[static_cast<size_t>(thread)].fetch_add(1) != 0) ++clashes;
    busy[static_cast<size_t>(thread)].fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, OneThreadRunsInlineInOrder) {
  ThreadPool pool(1);
  const std::thread::id me = std::this_thread::get_id();
  std::vector<int64_t> order;
  pool.run(10, [&](int64_t chunk, int thread) {
    EXPECT_EQ(std::this_thread::get_id(), me);
    EXPECT_EQ(thread, 0);
    order.push_back(chunk);
  });
  std::vector<int64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ThreadPool, RefusesNoThreads) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-3), Error);
}

TEST(ThreadPool, CanBeMadeAndDroppedAtOnce) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 5);
    if (i % 2 == 0) pool.run(3, [](int64_t, int) {});
  }
}

TEST(AvailableCpus, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace moetier
