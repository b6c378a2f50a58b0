// The streaming store: right bytes whatever the budget, the policy, the order and the engine; the budget is kept;
// failures end one fetch and nothing else.
#include "experts/stream_store.h"

#include "base/file.h"
#include "experts/slot_layout.h"
#include "experts/stream_fixture.h"
#include "io/page_cache.h"
#include "support/allocations.h"

namespace moetier {
namespace {

using testing_support::error_of;
using testing_support::FaultyOptions;

struct Case {
  std::string name;
  double cycles;  // of budget
  CachePolicy policy = CachePolicy::standard;
  ReadKind kind = ReadKind::automatic;
  bool overlap = true;
  int prefetch = 0;
  bool load_all = false;
  int depth = 8;
};

class StreamStore : public StreamFixture, public ::testing::WithParamInterface<Case> {};

TEST_P(StreamStore, GivesTheBytesOfTheFileAndKeepsItsBudget) {
  const Case& c = GetParam();
  StreamOptions options;
  options.budget_bytes = static_cast<uint64_t>(c.cycles * static_cast<double>(map_.token_cycle_bytes()));
  options.policy = c.policy;
  options.overlap = c.overlap;
  options.prefetch = c.prefetch;
  options.load_all = c.load_all;
  options.profile = {{0, 1}, {2, 0}, {5, 3}};
  FaultyOptions late;
  late.hold_polls = 3;
  late.shuffle = true;
  const auto store = make(options, c.kind, late, c.depth);
  uint64_t wanted = 0;
  for (int token = 0; token < 60; ++token) {
    const int rows = token == 0 ? 40 : token % 20 == 7 ? 5 : 1;
    for (const LayerEntries& layer : map_.layers) {
      const std::vector<int32_t> picks = random_picks(rows);
      wanted += std::set<int32_t>(picks.begin(), picks.end()).size();
      use(*store, layer.layer, picks, rows > 32 || token % 3 == 0 ? FetchOrder::ascending : FetchOrder::any);
      const StoreStatus status = store->status();
      ASSERT_LE(status.arena_bytes, std::max(options.budget_bytes, status.transit_bytes));
      ASSERT_LE(store->resident_bytes(), options.budget_bytes);
    }
  }
  const StoreCounters sum = store->counters();
  EXPECT_EQ(sum.hits + sum.misses + sum.large_hits + sum.large_misses, wanted);
  if (!c.load_all && c.prefetch == 0) {
    EXPECT_EQ(sum.reads, sum.misses + sum.large_misses + sum.swaps + store->status().prefilled);
  }
  if (c.cycles >= 4) {
    EXPECT_EQ(sum.evictions, 0u);
  }
  StoreCounters layers;
  for (const LayerEntries& layer : map_.layers) layers += store->counters(layer.layer);
  EXPECT_EQ(layers.hits, sum.hits);
  EXPECT_EQ(layers.bytes_read, sum.bytes_read);
  EXPECT_LE(store->status().token_demand_bytes, map_.token_cycle_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, StreamStore,
    ::testing::Values(Case{"transit_only", 0}, Case{"a_third", 0.3}, Case{"a_third_lru", 0.3, CachePolicy::lru},
                      Case{"one", 1}, Case{"one_and_a_half_lru", 1.5, CachePolicy::lru},
                      Case{"two_heat", 2, CachePolicy::heat}, Case{"two_cycle", 2, CachePolicy::cycle},
                      Case{"two_pinned", 2, CachePolicy::pinned}, Case{"two_adaptive", 2, CachePolicy::adaptive},
                      Case{"eight", 8}, Case{"threads", 1.5, CachePolicy::standard, ReadKind::threads},
                      Case{"threads_deep_one", 0.5, CachePolicy::lru, ReadKind::threads, true, 0, false, 1},
                      Case{"serial", 1.5, CachePolicy::standard, ReadKind::automatic, false},
                      Case{"serial_transit", 0, CachePolicy::standard, ReadKind::automatic, false},
                      Case{"prefetch", 2, CachePolicy::standard, ReadKind::automatic, true, 2},
                      Case{"prefetch_threads", 2, CachePolicy::lru, ReadKind::threads, true, 3},
                      Case{"load_all", 1, CachePolicy::standard, ReadKind::automatic, true, 0, true},
                      Case{"load_all_transit", 0, CachePolicy::standard, ReadKind::automatic, true, 0, true}),
    [](const auto& test) { return test.param.name; });

class StreamStoreTest : public StreamFixture {
 protected:
  StreamOptions cycles(double n) const {
    StreamOptions options;
    options.budget_bytes = static_cast<uint64_t>(n * static_cast<double>(map_.token_cycle_bytes()));
    return options;
  }
};

TEST_F(StreamStoreTest, SubmitsTheMissesOfALayerTogetherFirstProjectionsFirst) {
  const auto store = make(cycles(4));
  reads_->forget_seen();
  const Lease lease = store->fetch(2, std::vector<int32_t>{4, 9, 1}, 1, FetchOrder::any);
  ASSERT_EQ(reads_->seen().size(), 9u);
  const LayerEntries& layer = *map_.find(2);
  for (size_t i = 0; i < 9; ++i) {
    const SliceSource& slice = layer.slices[i / 3];
    const ReadRequest& read = reads_->seen()[i];
    EXPECT_GE(read.offset + kReadBlock, slice.offset) << i;
    EXPECT_LT(read.offset, slice.offset + slice.slice_bytes * kExperts) << i;
  }
}

TEST_F(StreamStoreTest, ShrinksToNothingAtOnceAndGrowsAgain) {
  const auto store = make(cycles(3));
  const auto turn = [&] {
    for (int token = 0; token < 12; ++token) {
      for (const LayerEntries& layer : map_.layers) use(*store, layer.layer, random_picks(1));
    }
  };
  turn();
  EXPECT_GT(store->resident_bytes(), 0u);
  store->set_budget(0);
  EXPECT_EQ(store->resident_bytes(), 0u);
  for (const LayerEntries& layer : map_.layers) EXPECT_TRUE(store->held(layer.layer).empty());
  turn();
  EXPECT_EQ(store->resident_bytes(), 0u);
  store->set_budget(cycles(2).budget_bytes);
  turn();
  EXPECT_GT(store->resident_bytes(), 0u);
  const uint64_t before = store->resident_bytes();
  store->set_budget(cycles(1).budget_bytes);
  EXPECT_LT(store->resident_bytes(), before);
  EXPECT_LE(store->status().arena_bytes, cycles(1).budget_bytes);
  turn();
}

TEST_F(StreamStoreTest, AFailedReadEndsTheFetchAndTheNextOneReadsAgain) {
  const auto store = make(cycles(2));
  for (const FetchOrder order : {FetchOrder::any, FetchOrder::ascending}) {
    reads_->add({.error = EIO, .times = 1});
    std::string said;
    {
      Lease lease = store->fetch(3, std::vector<int32_t>{1, 2, 3}, 1, order);
      said = error_of([&] {
        for (Ready r = lease.next_ready(); r; r = lease.next_ready()) {
          if (r.complete) lease.done(r.index);
        }
      });
    }
    EXPECT_NE(said.find("Input/output error"), std::string::npos) << said;
    EXPECT_NE(said.find(folder_.string()), std::string::npos) << said;
    for (int i = 0; i < 5; ++i) use(*store, 3, {1, 2, 3}, order);
    for (const LayerEntries& layer : map_.layers) use(*store, layer.layer, random_picks(1));
    store->set_budget(0);
    store->set_budget(cycles(2).budget_bytes);
  }
}

TEST_F(StreamStoreTest, ALeaseThatIsGivenUpLosesNothing) {
  const auto store = make(cycles(0.5));
  for (int i = 0; i < 30; ++i) {
    const std::vector<int32_t> picks = random_picks(2);
    Lease lease = store->fetch(0, picks, 2, i % 2 == 0 ? FetchOrder::any : FetchOrder::ascending);
    if (i % 3 == 1) {
      if (const Ready r = lease.next_ready(); r.complete) lease.done(r.index);
    }
  }
  for (int i = 0; i < 10; ++i) use(*store, 0, random_picks(2));
}

TEST_F(StreamStoreTest, SaysThatAFileWasCutShort) {
  const auto store = make(cycles(0));
  use(*store, 0, {0, 1, 2});
  std::filesystem::resize_file(path(0), 5000);
  const std::string said = error_of([&] { use(*store, 0, {3, 4, 5}); });
  EXPECT_NE(said.find(path(0)), std::string::npos) << said;
}

TEST_F(StreamStoreTest, KeepsReadingTheFileItOpenedWhenAnotherTakesItsName) {
  const auto store = make(cycles(0));
  std::ofstream(path(0) + ".new") << std::string(bytes_[0].size(), 'x');
  std::filesystem::rename(path(0) + ".new", path(0));
  use(*store, 0, {3, 4, 5});
}

TEST_F(StreamStoreTest, SaysThatAFileWasWrittenTo) {
  const auto store = make(cycles(2));
  use(*store, 0, {0, 1, 2});
  std::fstream(path(0), std::ios::in | std::ios::out | std::ios::binary).seekp(100) << "changed";
  std::filesystem::last_write_time(path(0), std::filesystem::file_time_type::clock::now() + std::chrono::seconds(2));
  const std::string said = error_of([&] { use(*store, 0, {3, 4, 5}); });
  EXPECT_NE(said.find("was changed while it was in use"), std::string::npos) << said;
}

TEST_F(StreamStoreTest, ReadsEachEntryOfAPromptOnceThoughTheUnionIsWiderThanTheBudget) {
  const auto store = make(cycles(0.4));
  std::vector<int32_t> picks;
  for (int r = 0; r < 40; ++r) {
    for (int k = 0; k < kTopK; ++k) picks.push_back((r * kTopK + k) % kExperts);
  }
  use(*store, 3, picks, FetchOrder::ascending);
  EXPECT_EQ(store->counters(3).reads, static_cast<uint64_t>(kExperts));
  EXPECT_EQ(store->counters(3).large_misses, static_cast<uint64_t>(kExperts));
}

TEST_F(StreamStoreTest, NeverReadsAnEntryThatWasNotPicked) {
  const auto store = make(cycles(1));
  reads_->forget_seen();
  for (int i = 0; i < 20; ++i) use(*store, 5, {1, 4, 7});
  const LayerEntries& layer = *map_.find(5);
  for (const ReadRequest& read : reads_->seen()) {
    bool picked = false;
    for (const SliceSource& slice : layer.slices) {
      for (const uint64_t e : {1, 4, 7}) {
        const uint64_t begin = slice.offset + e * slice.slice_bytes;
        picked |= read.offset <= begin && begin < read.offset + kReadBlock &&
                  read.offset + read.bytes < begin + slice.slice_bytes + kReadBlock;
      }
    }
    EXPECT_TRUE(picked) << read.offset;
  }
}

// Random leases, some given up in the middle, some with failing reads, and resizes between them.
TEST_F(StreamStoreTest, SurvivesAnythingInAnyOrder) {
  for (const ReadKind kind : {ReadKind::automatic, ReadKind::threads}) {
    StreamOptions options = cycles(2);
    options.prefetch = 2;
    FaultyOptions late;
    late.hold_polls = 2;
    late.shuffle = true;
    const auto store = make(options, kind, late);
    int failed = 0;
    for (int step = 0; step < 600; ++step) {
      const uint64_t dice = random_.next_starstar() % 20;
      const int layer = map_.layers[random_.next_starstar() % map_.layers.size()].layer;
      const FetchOrder order = dice % 2 == 0 ? FetchOrder::any : FetchOrder::ascending;
      if (dice == 0) {
        store->set_budget(random_.next_starstar() % options.budget_bytes);
      } else if (dice <= 2) {
        reads_->add({.error = EIO, .after = static_cast<int>(random_.next_starstar() % 4), .times = 1});
        try {
          Lease lease = store->fetch(layer, random_picks(3), 3, order);
          for (Ready r = lease.next_ready(); r; r = lease.next_ready()) {
            if (r.complete) lease.done(r.index);
          }
        } catch (const Error&) {
          ++failed;
        }
        reads_->clear_faults();
      } else if (dice <= 4) {
        Lease lease = store->fetch(layer, random_picks(2), 2, order);
        if (const Ready r = lease.next_ready(); r.complete && dice == 3) lease.done(r.index);
      } else {
        use(*store, layer, random_picks(static_cast<int>(1 + dice % 3)), order);
      }
      const StoreStatus status = store->status();
      ASSERT_LE(status.arena_bytes, std::max(status.budget_bytes, status.transit_bytes));
    }
    EXPECT_GT(failed, 0);
  }
}

// Direct reads leave nothing in the page cache, and a smaller budget gives memory back at once.
TEST_F(StreamStoreTest, ReadsPastThePageCacheAndReturnsMemory) {
  std::vector<ReadFile> files = open();
  if (!files[0].direct()) GTEST_SKIP() << "this file system has no direct reads: " << files[0].why_buffered();
  const auto store = make(cycles(4));
  for (const ReadFile& file : files) {
    ::fsync(file.fd());  // pages that are not written yet stay
    file.drop_from_page_cache(0, file.bytes());
  }
  for (int i = 0; i < 20; ++i) {
    for (const LayerEntries& layer : map_.layers) use(*store, layer.layer, random_picks(1));
  }
  for (int i = 0; i < 2; ++i) {
    const MappedFile mapped(path(i));
    EXPECT_EQ(bytes_in_memory(mapped.bytes().data(), mapped.bytes().size()), 0u);
  }
}

TEST_F(StreamStoreTest, ATokenAllocatesNothing) {
  StreamOptions options = cycles(1.5);
  const auto store = make_stream_store(
      map_, open(), [](std::span<const ReadFile> files) { return make_read_engine({.depth = 8}, files); }, options);
  std::vector<std::vector<int32_t>> picks;
  for (int i = 0; i < 400; ++i) picks.push_back(random_picks(1));
  size_t next = 0;
  const auto tokens = [&](int n) {
    for (int t = 0; t < n; ++t) {
      for (const LayerEntries& layer : map_.layers) {
        Lease lease = store->fetch(layer.layer, picks[next++ % picks.size()], 1, FetchOrder::any);
        for (Ready r = lease.next_ready(); r; r = lease.next_ready()) {
          if (r.complete) lease.done(r.index);
        }
      }
    }
  };
  tokens(50);
  const uint64_t before = testing_support::allocations();
  tokens(40);
  EXPECT_EQ(testing_support::allocations() - before, 0u);
}

TEST_F(StreamStoreTest, RefusesWhatCannotBeAsked) {
  const auto store = make(cycles(1));
  EXPECT_THROW((void)store->fetch(1, std::vector<int32_t>{0}, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store->fetch(0, std::vector<int32_t>{kExperts}, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store->fetch(0, std::vector<int32_t>{-1}, 1, FetchOrder::any), Error);
  const Lease lease = store->fetch(0, std::vector<int32_t>{0}, 1, FetchOrder::any);
  EXPECT_THROW((void)store->fetch(0, std::vector<int32_t>{0}, 1, FetchOrder::any), Error);
  EXPECT_THROW(store->set_budget(0), Error);
  EXPECT_EQ(store->rebalance(10), -1);
}

}  // namespace
}  // namespace moetier
