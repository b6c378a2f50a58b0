// A MoE call that is cancelled while its entries are being read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "experts/stream_store.h"
#include "moe_fixture.h"
#include "support/faulty_reads.h"

namespace moetier {
namespace {

using testing::Bench;
using testing::random_floats;
using testing::RandomLayer;
using testing_support::FaultyReads;

/// A layer's stacks in a file, and a store that streams them with reads that come one at a time.
class Cancel : public ::testing::TestWithParam<ReadKind> {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "cancel_" + std::to_string(::getpid());
    EntryMap map;
    map.layers.push_back(layer_.entries(0));
    std::ofstream file(path_, std::ios::binary);
    uint64_t at = 0;
    size_t s = 0;
    for (const std::vector<std::byte>* stack : layer_.stacks()) {
      map.layers[0].slices[s++].offset = at;
      file.write(reinterpret_cast<const char*>(stack->data()), static_cast<std::streamsize>(stack->size()));
      at += stack->size();
    }
    file.close();
    testing_support::FaultyOptions slow;
    slow.most_at_once = 1;
    slow.hold_polls = 1000;  // nothing comes before somebody waits for it
    slow.on_wait = [this] {
      if (--waits_ == 0) flag_ = true;
    };
    std::vector<ReadFile> files;
    files.emplace_back(path_, true);
    store_ = make_stream_store(
        map, std::move(files),
        [&](std::span<const ReadFile> opened) {
          auto engine = std::make_unique<FaultyReads>(
              make_read_engine({.kind = GetParam(), .depth = 4, .lanes = 2}, opened), slow);
          reads_ = engine.get();
          return engine;
        },
        StreamOptions{});  // no cache: everything is read
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove(path_);
  }

  const RandomLayer layer_{{.experts = 9, .top_k = 4}, 3};
  std::string path_;
  std::atomic<bool> flag_{false};
  int waits_ = -1;  ///< until the flag is raised
  std::unique_ptr<ExpertStore> store_;
  FaultyReads* reads_ = nullptr;
};

TEST_P(Cancel, EndsTheReadsAndTheNextCallIsServed) {
  std::mt19937 rng(2);
  testing::ShuffledStore plain({&layer_}, 1);
  for (const int64_t rows : {int64_t{1}, int64_t{40}}) {  // as they come, and in order
    const std::vector<float> input = random_floats(static_cast<size_t>(64 * rows), 1.0f, rng);
    Bench simple(layer_, plain, rows), bench(layer_, *store_, rows);
    const std::vector<float> want = simple.run(input);
    bench.moe().cancel_on(&flag_);
    int cancelled = 0;
    for (int at = 1; at <= 12; ++at) {
      waits_ = at;
      flag_ = false;
      bool ended = false;
      try {
        bench.run(input);
      } catch (const Cancelled&) {
        ended = true;
      }
      EXPECT_EQ(ended, flag_.load()) << "wait " << at;
      EXPECT_EQ(reads_->outstanding(), 0u) << "nothing may land in memory that is given to others";
      cancelled += ended ? 1 : 0;
      waits_ = -1;
      flag_ = false;
      ASSERT_EQ(bench.run(input), want) << "wait " << at;
    }
    EXPECT_GE(cancelled, 5) << "most of the reads were waited for";
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Cancel, ::testing::Values(ReadKind::automatic, ReadKind::threads));

}  // namespace
}  // namespace moetier
