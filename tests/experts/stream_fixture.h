// Two files of random bytes with the entries of four layers in them, at offsets that fit no block.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "experts/stream_store.h"
#include "support/error_of.h"
#include "support/faulty_reads.h"

namespace moetier {

class StreamFixture : public ::testing::Test {
 protected:
  static constexpr int kExperts = 12, kTopK = 3;
  static constexpr uint64_t kAlignment = 32;

  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("stream_" + std::to_string(::getpid()) + "_" +
                                                       ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    uint64_t end[2] = {1000 / kAlignment * kAlignment, 224};
    // Layers 0, 2, 3, 5 of a model; the last has fused slices, one lies in the second shard, one in both.
    for (const int layer : {0, 2, 3, 5}) {
      LayerEntries entries;
      entries.layer = layer;
      entries.n_expert = kExperts;
      entries.top_k = kTopK;
      const std::vector<Projection> projections = layer == 5
                                                      ? std::vector{Projection::gate_up, Projection::down}
                                                      : std::vector{Projection::gate, Projection::up, Projection::down};
      for (const Projection p : projections) {
        SliceSource slice;
        slice.projection = p;
        slice.slice_bytes = static_cast<uint64_t>(9000 + layer * 1504 + (p == Projection::down ? 4096 : 0)) / 32 * 32;
        slice.shard = layer == 2 || (layer == 3 && p == Projection::down) ? 1 : 0;
        uint64_t& at = end[slice.shard];
        slice.offset = at;
        at += slice.slice_bytes * kExperts + kAlignment;
        entries.slices.push_back(slice);
      }
      map_.layers.push_back(entries);
    }
    Xoshiro256 random(7);
    for (int i = 0; i < 2; ++i) {
      bytes_[i].resize(end[i] - kAlignment);  // the last slice ends with the file
      for (char& c : bytes_[i]) c = static_cast<char>(random.next_starstar());
      std::ofstream(path(i), std::ios::binary) << bytes_[i];
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(int i) const { return folder_ / ("part" + std::to_string(i)); }

  std::vector<ReadFile> open(bool direct = true) const {
    std::vector<ReadFile> files;
    for (int i = 0; i < 2; ++i) files.emplace_back(path(i), direct);
    return files;
  }

  /// A store whose engine can be told to fail.
  std::unique_ptr<ExpertStore> make(const StreamOptions& options, ReadKind kind = ReadKind::automatic,
                                    const testing_support::FaultyOptions& faulty = {}, int depth = 8) {
    return make_stream_store(
        map_, open(),
        [&](std::span<const ReadFile> files) {
          auto engine = std::make_unique<testing_support::FaultyReads>(
              make_read_engine({.kind = kind, .depth = depth, .lanes = 3}, files), faulty);
          reads_ = engine.get();
          return engine;
        },
        options);
  }

  /// True if the entry's slices hold what the file has.
  ::testing::AssertionResult right(int layer, const FetchedEntry& entry, bool complete) const {
    const LayerEntries& of = *map_.find(layer);
    const size_t slices = of.slices.size() - (complete ? 0 : 1);
    for (size_t s = 0; s < slices; ++s) {
      const SliceSource& slice = of.slices[s];
      const char* want =
          bytes_[slice.shard].data() + slice.offset + static_cast<uint64_t>(entry.expert) * slice.slice_bytes;
      if (std::memcmp(entry.slices[s], want, slice.slice_bytes) != 0) {
        return ::testing::AssertionFailure() << "layer " << layer << " expert " << entry.expert << " slice " << s;
      }
    }
    return ::testing::AssertionSuccess();
  }

  /// Fetches and uses every entry as the MoE operation does; the bytes must be right each time.
  void use(ExpertStore& store, int layer, const std::vector<int32_t>& picks, FetchOrder order = FetchOrder::any) {
    Lease lease = store.fetch(layer, picks, static_cast<int64_t>(picks.size()) / kTopK, order);
    const std::set<int32_t> wanted(picks.begin(), picks.end());
    ASSERT_EQ(lease.entries().size(), wanted.size());
    std::set<int> complete;
    int last = -1;
    for (Ready ready = lease.next_ready(); ready; ready = lease.next_ready()) {
      std::vector<int> finished;
      for (; ready; ready = lease.try_ready()) {
        EXPECT_TRUE(right(layer, lease.entries()[static_cast<size_t>(ready.index)], ready.complete));
        if (order == FetchOrder::ascending) {
          EXPECT_TRUE(ready.complete);
          EXPECT_EQ(ready.index, last + 1);
          last = ready.index;
        }
        if (!ready.complete) continue;
        EXPECT_TRUE(complete.insert(ready.index).second);
        finished.push_back(ready.index);
      }
      for (const int index : finished) lease.done(index);
    }
    EXPECT_EQ(complete.size(), wanted.size());
  }

  /// Random picks for `rows` rows, distinct within a row.
  std::vector<int32_t> random_picks(int rows) {
    std::vector<int32_t> picks;
    for (int r = 0; r < rows; ++r) {
      std::set<int32_t> row;
      while (row.size() < kTopK) {
        // Low ids more often, so that a cache has something to keep.
        const uint64_t a = random_.next_starstar() % kExperts, b = random_.next_starstar() % kExperts;
        const auto id = static_cast<int32_t>(std::min(a, b));
        if (row.insert(id).second) picks.push_back(id);
      }
    }
    return picks;
  }

  std::filesystem::path folder_;
  std::string bytes_[2];
  EntryMap map_;
  testing_support::FaultyReads* reads_ = nullptr;
  Xoshiro256 random_{11};
};

}  // namespace moetier
