#include "io/read_engine.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "io/temp_files.h"
#include "support/allocations.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::BlockMemory;
using testing_support::bytes_at;
using testing_support::error_of;
using testing_support::TempFiles;

struct Case {
  ReadKind kind;
  bool direct;
};

std::string name_of(const Case& c) {
  return std::string(c.kind == ReadKind::io_uring ? "io_uring" : "threads") + (c.direct ? "_direct" : "_buffered");
}

/// All results until nothing is outstanding, error by tag.
std::map<uint64_t, int> drain(ReadEngine& engine) {
  std::map<uint64_t, int> errors;
  ReadResult results[7];
  while (const size_t n = engine.wait(results)) {
    for (size_t i = 0; i < n; ++i) EXPECT_TRUE(errors.emplace(results[i].tag, results[i].error).second);
  }
  EXPECT_EQ(engine.outstanding(), 0u);
  EXPECT_EQ(engine.poll(results), 0u);
  return errors;
}

class ReadEngineTest : public testing::TestWithParam<Case> {
 protected:
  /// Opens it after files_ were made; skips where the kernel does not have it.
  std::unique_ptr<ReadEngine> open(int depth = 32, int lanes = 4) {
    for (const std::string& path : paths_) {
      opened_.emplace_back(path, GetParam().direct);
      if (GetParam().direct && !opened_.back().direct()) {
        skip_ = opened_.back().why_buffered();
        return nullptr;
      }
    }
    try {
      return make_read_engine({.kind = GetParam().kind, .depth = depth, .lanes = lanes}, opened_);
    } catch (const Error& e) {
      skip_ = e.what();
      return nullptr;
    }
  }

  void make(uint64_t bytes) { paths_.push_back(files_.make(std::to_string(paths_.size()), bytes, paths_.size() + 1)); }

  /// The bytes that a read should have brought, or as many as it needs.
  void expect_read(const ReadRequest& request) const {
    const auto expected = bytes_at(paths_[static_cast<size_t>(request.file)], request.offset, request.bytes);
    ASSERT_GE(expected.size(), request.need);
    EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + static_cast<int64_t>(request.need), request.to))
        << "file " << request.file << " offset " << request.offset;
  }

  /// Random reads of whole blocks into `memory`, one behind the other, some past the end of their file.
  std::vector<ReadRequest> random_reads(const BlockMemory& memory, uint64_t seed) const {
    Xoshiro256 random(seed);
    std::vector<ReadRequest> requests;
    for (uint64_t at = 0; at < memory.span().size();) {
      ReadRequest r;
      r.file = static_cast<int>(random.next_starstar() % paths_.size());
      const uint64_t size = std::filesystem::file_size(paths_[static_cast<size_t>(r.file)]);
      r.offset = random.next_starstar() % (size / kReadBlock + 1) * kReadBlock;
      r.bytes = std::min((1 + random.next_starstar() % 40) * kReadBlock, memory.span().size() - at);
      r.need = std::min(r.bytes, size - r.offset);
      if (r.need > 100 && random.next_starstar() % 3 == 0) r.need -= 100;
      r.to = memory.data() + at;
      r.tag = requests.size();
      at += r.bytes;
      requests.push_back(r);
    }
    return requests;
  }

  const TempFiles files_;
  std::vector<std::string> paths_;
  std::vector<ReadFile> opened_;
  std::string skip_;
};

#define OPEN_OR_SKIP(engine, ...)        \
  const auto engine = open(__VA_ARGS__); \
  if (engine == nullptr) GTEST_SKIP() << skip_

TEST_P(ReadEngineTest, RandomReadsOfSeveralFilesEqualPread) {
  make(1'000'000), make(4096 * 50), make(777), make(2'345'678);
  OPEN_OR_SKIP(engine, 8);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const BlockMemory memory(8 << 20);
    const auto requests = random_reads(memory, seed);
    ASSERT_GT(requests.size(), 50u);
    // In uneven batches, with what has come taken in between.
    std::map<uint64_t, int> errors;
    ReadResult results[5];
    Xoshiro256 random(seed);
    for (size_t i = 0; i < requests.size();) {
      const size_t n = std::min<size_t>(requests.size() - i, random.next_starstar() % 20);
      engine->submit(std::span(requests).subspan(i, n));
      i += n;
      const size_t come = engine->poll(results);
      for (size_t k = 0; k < come; ++k) errors[results[k].tag] = results[k].error;
    }
    errors.merge(drain(*engine));
    ASSERT_EQ(errors.size(), requests.size());
    for (const ReadRequest& r : requests) {
      EXPECT_EQ(errors[r.tag], 0) << "offset " << r.offset << " need " << r.need;
      expect_read(r);
    }
  }
}

TEST_P(ReadEngineTest, DepthOneReadsOneAfterTheOther) {
  make(500'000);
  OPEN_OR_SKIP(engine, 1, 1);
  EXPECT_EQ(engine->depth(), 1);
  const BlockMemory memory(1 << 20);
  const auto requests = random_reads(memory, 9);
  engine->submit(requests);
  EXPECT_EQ(engine->outstanding(), requests.size());
  EXPECT_EQ(drain(*engine).size(), requests.size());
  for (const ReadRequest& r : requests) expect_read(r);
}

TEST_P(ReadEngineTest, TheEndOfTheFileIsAnErrorOnlyBeforeWhatIsNeeded) {
  make(10'000);
  OPEN_OR_SKIP(engine);
  const BlockMemory memory(8 * 8192);
  std::vector<ReadRequest> requests;
  const auto add = [&](uint64_t offset, uint64_t need) {
    requests.push_back({0, offset, memory.data() + requests.size() * 8192, 8192, need, requests.size()});
  };
  add(8192, 10'000 - 8192);
  add(8192, 10'000 - 8192 + 1);
  add(4096, 10'000 - 4096);
  add(4096, 8192);
  add(12288, 0);
  add(12288, 1);
  add(1 << 20, 4096);
  engine->submit(requests);
  const std::map<uint64_t, int> expected{{0, 0}, {1, ENODATA}, {2, 0},      {3, ENODATA},
                                         {4, 0}, {5, ENODATA}, {6, ENODATA}};
  EXPECT_EQ(drain(*engine), expected);
  expect_read(requests[0]);
  expect_read(requests[2]);
  EXPECT_EQ(engine->meters().errors, 4u);
}

TEST_P(ReadEngineTest, AFileCutShortWhileItIsOpenIsAnError) {
  make(1 << 20);
  OPEN_OR_SKIP(engine);
  const BlockMemory memory(2 * 65536);
  ASSERT_EQ(truncate(paths_[0].c_str(), 100'000), 0);
  engine->submit(std::vector<ReadRequest>{{0, 65536, memory.data(), 65536, 65536, 1},
                                          {0, 0, memory.data() + 65536, 65536, 65536, 2}});
  const std::map<uint64_t, int> expected{{1, ENODATA}, {2, 0}};
  EXPECT_EQ(drain(*engine), expected);
}

TEST_P(ReadEngineTest, AReplacedFileKeepsItsOldBytes) {
  make(65536);
  OPEN_OR_SKIP(engine);
  const auto old = bytes_at(paths_[0], 0, 65536);
  ASSERT_EQ(std::rename(files_.make("new", 65536, 99).c_str(), paths_[0].c_str()), 0);
  const BlockMemory memory(65536);
  engine->submit(std::vector<ReadRequest>{{0, 0, memory.data(), 65536, 65536, 1}});
  drain(*engine);
  EXPECT_TRUE(std::equal(old.begin(), old.end(), memory.data()));
}

TEST_P(ReadEngineTest, ReadsThatTheKernelRefusesAreErrors) {
  make(65536);
  OPEN_OR_SKIP(engine);
  engine->submit(std::vector<ReadRequest>{{0, 0, nullptr, 4096, 4096, 1}});
  EXPECT_EQ(drain(*engine)[1], EFAULT);
  if (GetParam().direct) {
    const BlockMemory memory(8192);
    engine->submit(std::vector<ReadRequest>{{0, 0, memory.data() + 1, 4096, 4096, 1}});
    EXPECT_EQ(drain(*engine)[1], EINVAL);
  }
}

TEST_P(ReadEngineTest, CancelForgetsAllAndLeavesAnEngineThatReads) {
  make(8 << 20);
  OPEN_OR_SKIP(engine, 4, 2);
  const BlockMemory memory(4 << 20);
  const auto requests = random_reads(memory, 3);
  for (int round = 0; round < 5; ++round) {
    engine->submit(requests);
    ReadResult one[1];
    if (round % 2 == 0) {
      ASSERT_EQ(engine->wait(one), 1u);
    }
    engine->cancel();
    EXPECT_EQ(engine->outstanding(), 0u);
    EXPECT_EQ(engine->wait(one), 0u);
    // Nothing that was cancelled may still be written: the memory is the caller's again.
    std::fill_n(memory.data(), memory.span().size(), std::byte{1});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(std::count(memory.data(), memory.data() + memory.span().size(), std::byte{1}),
              static_cast<int64_t>(memory.span().size()));
  }
  engine->submit(requests);
  EXPECT_EQ(drain(*engine).size(), requests.size());
  for (const ReadRequest& r : requests) expect_read(r);
}

TEST_P(ReadEngineTest, DestroyedWithReadsInFlight) {
  make(8 << 20);
  const BlockMemory memory(4 << 20);
  {
    OPEN_OR_SKIP(engine, 4, 2);
    engine->submit(random_reads(memory, 3));
  }
  std::fill_n(memory.data(), memory.span().size(), std::byte{1});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(std::count(memory.data(), memory.data() + memory.span().size(), std::byte{1}),
            static_cast<int64_t>(memory.span().size()));
}

TEST_P(ReadEngineTest, ReadsIntoRegisteredMemoryThatShrinksAndGrows) {
  make(3 << 20), make(1'000'001);
  OPEN_OR_SKIP(engine);
  const BlockMemory one(1 << 20), two(1 << 20), third(1 << 20);
  // Some reads land in registered memory and some do not, and one lies across two regions.
  const std::vector<std::vector<std::span<std::byte>>> steps{
      {one.span(), two.span()},
      {two.span()},
      {},
      {third.span(), one.span(), two.span()},
      {one.span().subspan(0, 65536 + 100), one.span().subspan(131072)}};
  uint64_t seed = 20;
  for (const auto& regions : steps) {
    EXPECT_THAT(engine->register_memory(regions), IsEmpty());
    for (const BlockMemory* memory : {&one, &two, &third}) {
      std::fill_n(memory->data(), memory->span().size(), std::byte{0xa5});
      const auto requests = random_reads(*memory, seed++);
      engine->submit(requests);
      if (memory == &two) engine->unregister_memory();  // reads in flight are not lost
      for (const auto& [tag, error] : drain(*engine)) EXPECT_EQ(error, 0);
      for (const ReadRequest& r : requests) expect_read(r);
      if (memory == &two) {
        EXPECT_THAT(engine->register_memory(regions), IsEmpty());
      }
    }
  }
  engine->unregister_memory();
  engine->unregister_memory();
}

TEST_P(ReadEngineTest, MetersTellReadsIntoRegisteredMemory) {
  make(1 << 20);
  OPEN_OR_SKIP(engine);
  const BlockMemory memory(16 * kReadBlock);
  const std::vector<std::span<std::byte>> regions{memory.span().subspan(12 * kReadBlock),
                                                  memory.span().subspan(4 * kReadBlock, 4 * kReadBlock)};
  ASSERT_THAT(engine->register_memory(regions), IsEmpty());
  // Two blocks each, one block apart: those at 4, 5, 6, 12, 13 and 14 lie in a region.
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < 15; ++i) {
    requests.assign(1, {0, i * kReadBlock, memory.data() + i * kReadBlock, 2 * kReadBlock, 2 * kReadBlock, i});
    engine->submit(requests);
    EXPECT_EQ(drain(*engine)[i], 0);
    expect_read(requests[0]);
  }
  EXPECT_EQ(engine->meters().registered, GetParam().kind == ReadKind::io_uring ? 6u : 0u);
}

TEST_P(ReadEngineTest, SteadyStateAllocatesNothing) {
  make(4 << 20);
  OPEN_OR_SKIP(engine, 4, 2);
  const BlockMemory memory(2 << 20);
  const auto requests = random_reads(memory, 5);
  std::vector<ReadResult> results(requests.size());
  const auto round = [&] {
    engine->submit(requests);
    for (size_t n = engine->poll(results); n < requests.size(); n += engine->wait(results)) {
    }
  };
  round();
  const int64_t before = testing_support::allocations();
  round();
  round();
  EXPECT_EQ(testing_support::allocations(), before);
}

TEST_P(ReadEngineTest, MetersCountWhatCame) {
  make(1 << 20);
  OPEN_OR_SKIP(engine);
  const BlockMemory memory(1 << 20);
  engine->submit(std::vector<ReadRequest>{{0, 0, memory.data(), 1 << 19, 1 << 19, 1},
                                          {0, 1 << 19, memory.data() + (1 << 19), 1 << 19, 1 << 19, 2}});
  drain(*engine);
  const ReadMeters meters = engine->meters();
  EXPECT_EQ(meters.reads, 2u);
  EXPECT_EQ(meters.bytes, 1u << 20);
  EXPECT_EQ(meters.errors, 0u);
  EXPECT_GT(meters.busy_seconds, 0.0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(engine->meters().busy_seconds, meters.busy_seconds) << "an idle engine is not busy";
}

TEST_P(ReadEngineTest, MayBeUsedByAnotherThreadThanMadeIt) {
  make(1 << 20);
  OPEN_OR_SKIP(engine, 2, 2);
  const BlockMemory memory(1 << 20);
  const auto requests = random_reads(memory, 6);
  // The kernel cancels what waits when the thread that submitted it ends.
  std::thread([&] { engine->submit(requests); }).join();
  const auto errors = drain(*engine);
  EXPECT_EQ(errors.size(), requests.size());
  for (const auto& [tag, error] : errors) EXPECT_EQ(error, 0) << tag;
  for (const ReadRequest& r : requests) expect_read(r);
}

TEST_P(ReadEngineTest, SignalsDoNotEndAWait) {
  make(4 << 20);
  OPEN_OR_SKIP(engine, 2, 2);
  const BlockMemory memory(4 << 20);
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction count {
  }, before{};
  count.sa_handler = [](int) { ++signals; };  // without SA_RESTART: system calls end with EINTR
  sigaction(SIGALRM, &count, &before);
  const itimerval often{{0, 500}, {0, 500}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  uint64_t seed = 30;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
       std::chrono::steady_clock::now() < end || signals < 10;) {
    const auto requests = random_reads(memory, seed++);
    engine->submit(requests);
    const auto errors = drain(*engine);
    EXPECT_EQ(errors.size(), requests.size());
    for (const auto& [tag, error] : errors) EXPECT_EQ(error, 0) << tag;
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_P(ReadEngineTest, RequestsThatCannotBeMeantAreRefused) {
  make(4096);
  OPEN_OR_SKIP(engine);
  const BlockMemory memory(4096);
  EXPECT_THAT(error_of([&] {
                engine->submit(std::vector<ReadRequest>{{1, 0, memory.data(), 4096, 1, 1}});
              }),
              HasSubstr("file 1 of 1"));
  EXPECT_THAT(error_of([&] {
                engine->submit(std::vector<ReadRequest>{{-1, 0, memory.data(), 4096, 1, 1}});
              }),
              HasSubstr("file -1"));
  EXPECT_THAT(error_of([&] {
                engine->submit(std::vector<ReadRequest>{{0, 0, memory.data(), 4096, 4097, 1}});
              }),
              HasSubstr("needs 4097"));
  EXPECT_EQ(engine->outstanding(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReadEngineTest,
                         testing::Values(Case{ReadKind::io_uring, true}, Case{ReadKind::io_uring, false},
                                         Case{ReadKind::threads, true}, Case{ReadKind::threads, false}),
                         [](const testing::TestParamInfo<Case>& one) { return name_of(one.param); });

TEST(ReadEngineOptions, OutOfRangeIsRefused) {
  EXPECT_THAT(error_of([] { make_read_engine({.depth = 0}, {}); }), HasSubstr("depth"));
  EXPECT_THAT(error_of([] { make_read_engine({.depth = kMostDepth + 1}, {}); }), HasSubstr("depth"));
  EXPECT_THAT(error_of([] { make_read_engine({.lanes = 0}, {}); }), HasSubstr("lanes"));
}

}  // namespace
}  // namespace moetier
