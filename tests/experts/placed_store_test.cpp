// The mapped store: entries where the file has them, distinct and ascending, counted once per fetch.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "experts/placed_store.h"
#include "gguf/writer.h"
#include "io/advice.h"
#include "support/allocations.h"

namespace moetier {
namespace {

constexpr int64_t kColumns = 8, kWidth = 16;
constexpr int64_t kBigWidth = 16384;  // slices of 512 KiB

/// A file with experts in layers 1 and 3; every byte of an expert's slice names (layer, projection, expert).
class MappedStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("mapped_store_" + std::to_string(getpid()) + ".gguf")).string();
    GgufWriter writer;
    writer.set("general.architecture", std::string("qwen3moe"));
    add_layer(writer, 1, 5);
    add_layer(writer, 3, 4);
    writer.write(path_);
    file_.emplace(GgufFile::open(path_));
    store_ = make_mapped_store(*file_, EntryMap::from_gguf(*file_, 2));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static std::byte mark(int layer, int projection, int expert) {
    return static_cast<std::byte>(layer * 60 + projection * 20 + expert);
  }
  static void add_layer(GgufWriter& writer, int layer, int experts, int64_t width = kWidth) {
    const char* names[] = {"gate", "up", "down"};
    for (int p = 0; p < 3; ++p) {
      const std::vector<int64_t> shape =
          p == 2 ? std::vector<int64_t>{width, kColumns, experts} : std::vector<int64_t>{kColumns, width, experts};
      std::vector<std::byte> data;
      for (int e = 0; e < experts; ++e)
        data.insert(data.end(), static_cast<size_t>(kColumns * width * 4), mark(layer, p, e));
      writer.add_tensor("blk." + std::to_string(layer) + ".ffn_" + names[p] + "_exps.weight", TensorType::f32, shape,
                        std::move(data));
    }
  }

  std::string path_;
  std::optional<GgufFile> file_;
  std::unique_ptr<ExpertStore> store_;
};

TEST_F(MappedStoreTest, GivesDistinctExpertsAscendingWithTheirBytes) {
  const std::vector<int32_t> picks{4, 1, 1, 3, 4, 1};
  Lease lease = store_->fetch(1, picks, 1, FetchOrder::any);
  ASSERT_EQ(lease.entries().size(), 3u);
  const int experts[] = {1, 3, 4};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lease.next_ready().index, i);
    const FetchedEntry& entry = lease.entries()[static_cast<size_t>(i)];
    EXPECT_EQ(entry.expert, experts[i]);
    for (int p = 0; p < 3; ++p) {
      const std::vector<std::byte> want(kColumns * kWidth * 4, mark(1, p, experts[i]));
      EXPECT_EQ(std::memcmp(entry.slices[static_cast<size_t>(p)], want.data(), want.size()), 0);
    }
  }
  EXPECT_FALSE(lease.next_ready());
  EXPECT_FALSE(lease.try_ready());
}

TEST_F(MappedStoreTest, CountsEachDistinctEntryOnceAndPerLayer) {
  const std::vector<int32_t> repeated{2, 2, 0, 2}, one{3};
  { const Lease lease = store_->fetch(1, repeated, 1, FetchOrder::any); }
  { const Lease lease = store_->fetch(1, one, 1, FetchOrder::any); }
  { const Lease lease = store_->fetch(3, one, 1, FetchOrder::any); }
  EXPECT_EQ(store_->counters(1).hits, 3u);
  EXPECT_EQ(store_->counters(3).hits, 1u);
  EXPECT_EQ(store_->counters().hits, 4u);
  EXPECT_EQ(store_->counters().misses, 0u);
  EXPECT_EQ(store_->counters().bytes_read, 0u);
}

TEST_F(MappedStoreTest, RefusesWrongLayersExpertsAndASecondLease) {
  const std::vector<int32_t> fine{0}, high{4}, negative{-1};
  EXPECT_THROW((void)store_->fetch(0, fine, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store_->fetch(4, fine, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store_->fetch(-1, fine, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store_->fetch(3, high, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store_->fetch(3, negative, 1, FetchOrder::any), Error);
  EXPECT_THROW((void)store_->counters(2), Error);
  const Lease lease = store_->fetch(3, fine, 1, FetchOrder::any);
  EXPECT_THROW((void)store_->fetch(1, fine, 1, FetchOrder::any), Error);
}

TEST_F(MappedStoreTest, AFailedFetchLeavesNoLeaseBehind) {
  const std::vector<int32_t> fine{0}, high{99};
  EXPECT_THROW((void)store_->fetch(1, high, 1, FetchOrder::any), Error);
  EXPECT_EQ(store_->fetch(1, fine, 1, FetchOrder::any).entries().size(), 1u);
  EXPECT_EQ(store_->counters(1).hits, 1u);
}

TEST_F(MappedStoreTest, ResidentBytesNeverExceedTheBank) {
  // Just written, so the pages lie in the page cache.
  EXPECT_GT(store_->resident_bytes(), 0u);
  EXPECT_LE(store_->resident_bytes(), store_->map().total_bytes());
}

TEST_F(MappedStoreTest, FetchAllocatesNothing) {
  const std::vector<int32_t> picks{4, 1, 1, 3};
  const int64_t before = testing_support::allocations();
  for (int i = 0; i < 10; ++i) {
    Lease lease = store_->fetch(1, picks, 1, FetchOrder::any);
    while (lease.next_ready()) {
    }
  }
  EXPECT_EQ(testing_support::allocations(), before);
}

TEST_F(MappedStoreTest, RefusesAMapOfAnotherFile) {
  EntryMap map = EntryMap::from_gguf(*file_, 2);
  map.layers[0].slices[0].offset += 4;
  EXPECT_THROW(make_mapped_store(*file_, map), Error);
  map = EntryMap::from_gguf(*file_, 2);
  map.layers[1].slices[2].slice_bytes *= 2;
  EXPECT_THROW(make_mapped_store(*file_, map), Error);
}

TEST_F(MappedStoreTest, AdviceIsGivenOncePerPickedSliceBeforeAnythingIsComputed) {
  const auto advising = make_advising_store(*file_, EntryMap::from_gguf(*file_, 2), {});
  const std::vector<int32_t> picks{4, 1, 4, 2};
  {
    const Lease lease = advising->fetch(1, picks, 2, FetchOrder::any);
    EXPECT_EQ(lease.entries().size(), 3u);
    EXPECT_EQ(advising->meters().advise_calls, 9u);  // three entries of three slices, before the first is given
  }
  EXPECT_EQ(advising->meters().advise_failures, 0u);
  EXPECT_GE(advising->meters().advise_bytes, 9u * kColumns * kWidth * 4);
  EXPECT_EQ(advising->status().mode, ExpertMode::advise);
  const int64_t before = testing_support::allocations();
  for (int i = 0; i < 50; ++i) {
    Lease lease = advising->fetch(3, std::vector<int32_t>{}, 1, FetchOrder::any);
    while (lease.next_ready()) {
    }
  }
  EXPECT_EQ(testing_support::allocations(), before);
  const uint64_t calls = advising->meters().advise_calls;
  {
    Lease lease = advising->fetch(1, picks, 2, FetchOrder::ascending);
    while (const Ready ready = lease.next_ready()) lease.done(ready.index);
  }
  EXPECT_EQ(advising->meters().advise_calls, calls + 9);
}

TEST_F(MappedStoreTest, NoopDoesAllButTheCall) {
  const auto noop = make_advising_store(*file_, EntryMap::from_gguf(*file_, 2), {.hint = false});
  Lease lease = noop->fetch(1, std::vector<int32_t>{0, 3}, 1, FetchOrder::any);
  EXPECT_EQ(lease.next_ready().index, 0);
  EXPECT_EQ(noop->meters().advise_calls, 0u);
  EXPECT_EQ(noop->status().mode, ExpertMode::noop);
  EXPECT_FALSE(noop->status().advising);
}

// A slice longer than what the kernel honours at once is asked for in parts.
TEST_F(MappedStoreTest, LongSlicesAreAdvisedInParts) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto advising = make_advising_store(*file_, EntryMap::from_gguf(*file_, 2), {.call_bytes = page});
  const Lease lease = advising->fetch(1, std::vector<int32_t>{0}, 1, FetchOrder::any);
  EXPECT_GE(advising->meters().advise_calls, 3u);
  EXPECT_LE(advising->meters().advise_calls, 6u);
}

TEST_F(MappedStoreTest, ResidentEntriesAreACopyOfTheFile) {
  std::vector<ReadFile> files;
  files.emplace_back(path_, true);
  const auto engine = make_read_engine({}, files);
  const auto resident = make_resident_store(EntryMap::from_gguf(*file_, 2), *engine, files, true);
  EXPECT_EQ(resident->resident_bytes(), resident->map().total_bytes());
  for (const int layer : {1, 3}) {
    const std::vector<int32_t> picks{0, 1, 2, 3};
    const Lease a = resident->fetch(layer, picks, 1, FetchOrder::any),
                b = store_->fetch(layer, picks, 1, FetchOrder::any);
    for (size_t i = 0; i < picks.size(); ++i) {
      for (size_t s = 0; s < 3; ++s) {
        EXPECT_NE(a.entries()[i].slices[s], b.entries()[i].slices[s]);
        EXPECT_EQ(std::memcmp(a.entries()[i].slices[s], b.entries()[i].slices[s], kColumns * kWidth * 4), 0);
      }
    }
  }
}

// What the page cache has is copied and not read; the bytes are the same.
TEST_F(MappedStoreTest, ResidentEntriesMayComeFromThePageCache) {
  std::vector<ReadFile> files;
  files.emplace_back(path_, true);
  const auto engine = make_read_engine({}, files);
  ThreadPool pool(2);
  std::vector<PageCacheView> views;
  views.emplace_back(path_, file_->shard_bytes(0));
  const auto resident =
      make_resident_store(EntryMap::from_gguf(*file_, 2), *engine, files, false, WarmSource{views, &pool});
  EXPECT_EQ(engine->meters().reads, 0u);
  const std::vector<int32_t> picks{0, 3};
  const Lease lease = resident->fetch(3, picks, 1, FetchOrder::any);
  for (size_t s = 0; s < 3; ++s) {
    const std::vector<std::byte> want(kColumns * kWidth * 4, mark(3, static_cast<int>(s), 3));
    EXPECT_EQ(std::memcmp(lease.entries()[1].slices[s], want.data(), want.size()), 0);
  }
}

TEST_F(MappedStoreTest, EntriesAreCopiedWhenTheyAreUsedAgain) {
  const auto copying = make_copying_store(*file_, EntryMap::from_gguf(*file_, 2), 2);
  EXPECT_EQ(copying->status().mode, ExpertMode::resident);
  const auto fetch = [&](int layer, const std::vector<int32_t>& picks) {
    const Lease lease = copying->fetch(layer, picks, 1, FetchOrder::any);
    std::vector<const std::byte*> places;
    for (const FetchedEntry& entry : lease.entries()) {
      places.push_back(entry.slices[0]);
      for (size_t s = 0; s < 3; ++s) {
        const std::vector<std::byte> want(kColumns * kWidth * 4, mark(layer, static_cast<int>(s), entry.expert));
        EXPECT_EQ(std::memcmp(entry.slices[s], want.data(), want.size()), 0);
      }
    }
    return places;
  };
  const auto first = fetch(1, {1, 4}), second = fetch(1, {0, 4}), third = fetch(1, {0, 1, 4});
  EXPECT_NE(first[1], second[1]);
  EXPECT_EQ(second[1], third[2]);
  EXPECT_NE(second[0], third[0]);
  EXPECT_EQ(copying->meters().copied_bytes, 3 * copying->map().layers[0].entry_bytes());
  for (int i = 0; i < 2; ++i) {
    fetch(1, {0, 1, 2, 3, 4});
    fetch(3, {0, 1, 2, 3});
  }
  EXPECT_EQ(copying->meters().copied_bytes, copying->map().total_bytes());
  const uint64_t before = testing_support::allocations();
  { const Lease lease = copying->fetch(3, std::vector<int32_t>{}, 1, FetchOrder::any); }
  EXPECT_EQ(testing_support::allocations(), before);
  EXPECT_EQ(fetch(3, {2}), fetch(3, {2}));
}

// Where memory is short, the page cache gives back what was copied.
TEST_F(MappedStoreTest, CopiedEntriesCanLeaveThePageCache) {
  file_.reset();
  GgufWriter writer;
  writer.set("general.architecture", std::string("qwen3moe"));
  add_layer(writer, 1, 5, kBigWidth);
  writer.write(path_);
  file_.emplace(GgufFile::open(path_));
  std::vector<ReadFile> files;
  files.emplace_back(path_, true);
  const std::span<const std::byte> bytes = file_->shard_bytes(0);
  const auto in_memory = [&] { return bytes_in_memory(bytes.data(), bytes.size()); };
  ::fsync(files[0].fd());  // pages that are not written yet stay
  advise_unmap(bytes.data(), bytes.size());
  files[0].drop_from_page_cache(0, bytes.size());
  if (in_memory() > bytes.size() / 10) GTEST_SKIP() << "this file system keeps its pages in memory";
  const auto copying = make_copying_store(*file_, EntryMap::from_gguf(*file_, 2), 2, std::move(files));
  const auto use = [&](const std::vector<int32_t>& picks) {
    const Lease lease = copying->fetch(1, picks, 1, FetchOrder::any);
    for (const FetchedEntry& entry : lease.entries()) {
      for (size_t s = 0; s < 3; ++s) {
        const std::vector<std::byte> want(kColumns * kBigWidth * 4, mark(1, static_cast<int>(s), entry.expert));
        EXPECT_EQ(std::memcmp(entry.slices[s], want.data(), want.size()), 0);
      }
    }
  };
  use({0, 1, 2, 3, 4});
  EXPECT_GT(in_memory(), bytes.size() / 10 * 9);
  use({2, 4});
  use({0, 3});
  use({1});
  // The kernel drops large folios whole only, so some may stay at the ends of tensors.
  EXPECT_LT(in_memory(), bytes.size() / 2);
  EXPECT_EQ(copying->meters().copied_bytes, copying->map().total_bytes());
  use({0, 1, 2, 3, 4});
}

}  // namespace
}  // namespace moetier
