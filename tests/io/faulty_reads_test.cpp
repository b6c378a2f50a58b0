// The wrapper that other tests rely on does what they believe.
#include "support/faulty_reads.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <map>
#include <vector>

#include "io/temp_files.h"

namespace moetier {
namespace {

using testing_support::BlockMemory;
using testing_support::bytes_at;
using testing_support::FaultyOptions;
using testing_support::FaultyReads;
using testing_support::TempFiles;

constexpr uint64_t kReads = 32;

class FaultyReadsTest : public testing::Test {
 protected:
  FaultyReads make(const FaultyOptions& options) const {
    return FaultyReads(make_read_engine({.depth = 8}, opened_), options);
  }

  std::vector<ReadRequest> requests() const {
    std::vector<ReadRequest> out;
    for (uint64_t i = 0; i < kReads; ++i) {
      out.push_back({0, i * kReadBlock, memory_.data() + i * kReadBlock, kReadBlock, kReadBlock, 100 + i});
    }
    return out;
  }

  /// The order of the tags, each with its error.
  static std::vector<std::pair<uint64_t, int>> drain(FaultyReads& engine) {
    std::vector<std::pair<uint64_t, int>> out;
    ReadResult results[4];
    while (engine.outstanding() > 0) {
      const size_t n = engine.wait(results);
      EXPECT_GT(n, 0u);
      for (size_t i = 0; i < n; ++i) out.emplace_back(results[i].tag, results[i].error);
    }
    return out;
  }

  TempFiles files_;
  std::string path_ = files_.make("model", kReads* kReadBlock, 1);
  std::vector<ReadFile> opened_ = [this] {
    std::vector<ReadFile> files;
    files.emplace_back(path_, true);
    return files;
  }();
  BlockMemory memory_{kReads * kReadBlock};
};

TEST_F(FaultyReadsTest, WithoutFaultsEveryByteComes) {
  FaultyReads engine = make({.hold_polls = 3, .shuffle = true, .most_at_once = 2});
  engine.submit(requests());
  std::map<uint64_t, int> results;
  for (const auto& [tag, error] : drain(engine)) results[tag] = error;
  ASSERT_EQ(results.size(), kReads);
  for (const auto& [tag, error] : results) EXPECT_EQ(error, 0) << tag;
  const auto expected = bytes_at(path_, 0, kReads * kReadBlock);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory_.data()));
  EXPECT_EQ(engine.seen().size(), kReads);
}

TEST_F(FaultyReadsTest, FaultsHitTheirOffsetsAsOftenAsTold) {
  FaultyReads engine = make({});
  engine.add({.error = EIO, .begin = 5 * kReadBlock + 10, .end = 6 * kReadBlock + 1});
  engine.add({.error = ENODATA, .begin = 20 * kReadBlock, .after = 2, .times = 1});
  engine.add({.error = EIO, .file = 1});
  engine.submit(requests());
  std::map<uint64_t, int> wrong;
  for (const auto& [tag, error] : drain(engine)) {
    if (error != 0) wrong[tag] = error;
  }
  EXPECT_EQ(wrong, (std::map<uint64_t, int>{{105, EIO}, {106, EIO}, {122, ENODATA}}));
  EXPECT_EQ(engine.injected(), 3);
  EXPECT_EQ(memory_.data()[5 * kReadBlock], std::byte{0xdb}) << "what failed brought nothing that could be used";
  engine.clear_faults();
  engine.submit(requests());
  for (const auto& [tag, error] : drain(engine)) EXPECT_EQ(error, 0) << tag;
}

TEST_F(FaultyReadsTest, ShufflesTheOrder) {
  const auto order = [&](bool shuffle) {
    FaultyReads engine = make({.seed = 7, .shuffle = shuffle});
    engine.add({});  // nothing reaches the drive, so that the order is the wrapper's own
    engine.submit(requests());
    return drain(engine);
  };
  EXPECT_EQ(order(true), order(true));
  EXPECT_NE(order(true), order(false));
}

TEST_F(FaultyReadsTest, HeldResultsComeByPollingInTheEnd) {
  FaultyReads engine = make({.hold_polls = 4});
  engine.add({});
  engine.submit(requests());
  ReadResult results[kReads];
  size_t come = 0;
  int polls = 0;
  for (; come < kReads && polls < 10; ++polls) come += engine.poll(results);
  EXPECT_EQ(come, kReads);
  EXPECT_GT(polls, 1);
}

TEST_F(FaultyReadsTest, CancelForgetsWhatIsHeld) {
  FaultyReads engine = make({.hold_polls = 4});
  engine.add({.end = 3 * kReadBlock});
  engine.submit(requests());
  engine.cancel();
  EXPECT_EQ(engine.outstanding(), 0u);
  engine.clear_faults();
  engine.submit(requests());
  EXPECT_EQ(drain(engine).size(), kReads);
}

}  // namespace
}  // namespace moetier
