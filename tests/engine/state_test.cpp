#include "engine/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "engine/memory_compute.h"
#include "engine/random.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing_support::error_of;
using testing_support::MemoryCompute;

HParams small_model() {
  HParams h;
  h.architecture = "llama";
  h.layers = 2;
  h.width = 12;
  h.heads = 4;
  h.kv_heads = 2;
  h.key_length = 6;
  h.value_length = 10;
  h.vocab = 100;
  return h;
}

class State : public testing::Test {
 protected:
  MemoryCompute compute;
  KvPool pool{compute, small_model(), TensorType::f16, 8};

  /// Where element `index` of a head's key (or value) at a position lies.
  uint16_t* at(const SequenceState& s, int layer, bool key, int head, int64_t position, int index) {
    const KvLayer& l = pool.layers()[static_cast<size_t>(layer)];
    const Tensor& t = key ? l.k : l.v;
    const int64_t page = s.pages()[static_cast<size_t>(position / kPagePositions)];
    const int64_t row = (page * t.shape[2] + head) * kPagePositions + position % kPagePositions;
    std::byte* base = t.buffer->host() + t.offset + static_cast<size_t>(row) * t.row_stride;
    return reinterpret_cast<uint16_t*>(base) + index;
  }

  template <typename Visit>
  void for_each(const SequenceState& s, int64_t position, Visit visit) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 2; ++head) {
        for (int i = 0; i < 6; ++i) visit(layer * 1000 + head * 100 + i, at(s, layer, true, head, position, i));
        for (int i = 0; i < 10; ++i) visit(layer * 1000 + head * 100 + 50 + i, at(s, layer, false, head, position, i));
      }
    }
  }

  /// Appends n positions whose contents tell position and `salt`.
  void grow(SequenceState& s, int64_t n, int salt) {
    const int64_t first = s.append(n);
    for (int64_t p = first; p < first + n; ++p) {
      for_each(s, p, [&](int where, uint16_t* value) { *value = static_cast<uint16_t>(where + p * 7 + salt * 5003); });
    }
  }

  /// Expects positions [from, to) as grow() with `salt` wrote them.
  void expect_held(const SequenceState& s, int64_t from, int64_t to, int salt) {
    int wrong = 0;
    for (int64_t p = from; p < to; ++p) {
      for_each(s, p, [&](int where, uint16_t* value) {
        wrong += *value != static_cast<uint16_t>(where + p * 7 + salt * 5003);
      });
    }
    EXPECT_EQ(wrong, 0) << "positions " << from << " to " << to << " salt " << salt;
  }
};

TEST_F(State, PoolCountsItsPages) {
  EXPECT_EQ(pool.capacity(), 8);
  EXPECT_EQ(pool.free_pages(), 8);
  EXPECT_EQ(pool.page_bytes(), 2u * 2 * 64 * (6 + 10) * 2);
  EXPECT_EQ(pool.used_bytes(), 0u);
  const int32_t a = pool.acquire();
  pool.retain(a);
  EXPECT_EQ(pool.references(a), 2);
  EXPECT_EQ(pool.used_bytes(), pool.page_bytes());
  pool.release(a);
  pool.release(a);
  EXPECT_EQ(pool.free_pages(), 8);
  EXPECT_THROW(pool.release(a), Error);
  EXPECT_THROW(pool.retain(8), Error);
  EXPECT_THROW(pool.references(-1), Error);
}

TEST_F(State, PoolRefusesWhatItCannotHold) {
  EXPECT_THROW(KvPool(compute, small_model(), TensorType::q8_0, 1), Error);
  EXPECT_THROW(KvPool(compute, small_model(), TensorType::f16, 0), Error);
  HParams none = small_model();
  none.kv_heads = 0;
  EXPECT_THROW(KvPool(compute, none, TensorType::f16, 1), Error);
  HParams huge = small_model();
  huge.layers = 1 << 10;
  huge.key_length = huge.value_length = 1 << 20;
  EXPECT_THROW(KvPool(compute, huge, TensorType::f32, 1 << 30), Error);
}

TEST_F(State, GivesPagesAsTheyAreNeeded) {
  SequenceState s(pool);
  EXPECT_EQ(s.append(0), 0);
  EXPECT_EQ(pool.free_pages(), 8);
  EXPECT_EQ(s.append(1), 0);
  EXPECT_EQ(pool.free_pages(), 7);
  EXPECT_EQ(s.append(63), 1);
  EXPECT_EQ(pool.free_pages(), 7);
  EXPECT_EQ(s.append(65), 64);
  EXPECT_EQ(pool.free_pages(), 5);
  s.truncate(65);
  EXPECT_EQ(pool.free_pages(), 6);
  s.truncate(64);
  EXPECT_EQ(pool.free_pages(), 7);
  s.truncate(0);
  EXPECT_EQ(pool.free_pages(), 8);
}

TEST_F(State, AppendIsAllOrNothing) {
  SequenceState s(pool);
  grow(s, 100, 1);
  const std::vector<int32_t> pages(s.pages().begin(), s.pages().end());
  EXPECT_THROW(s.append(64 * 8), Error);
  EXPECT_THROW(s.append(-1), Error);
  EXPECT_THROW(s.append(INT64_MAX), Error);
  EXPECT_EQ(s.length(), 100);
  EXPECT_TRUE(std::equal(pages.begin(), pages.end(), s.pages().begin(), s.pages().end()));
  EXPECT_EQ(pool.free_pages(), 6);
  EXPECT_THAT(error_of([&] { SequenceState(pool).append(7 * 64); }),
              testing::HasSubstr("7 more pages of 64 positions are needed and 6 of 8"));
  s.append(64 * 8 - 100);
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST_F(State, ForkSharesUntilWritten) {
  SequenceState a(pool);
  grow(a, 100, 1);
  SequenceState b = a.fork();
  EXPECT_EQ(pool.free_pages(), 6);
  grow(b, 10, 2);
  EXPECT_EQ(pool.free_pages(), 5);  // the partial page was copied, the full one is shared
  EXPECT_EQ(a.pages()[0], b.pages()[0]);
  EXPECT_NE(a.pages()[1], b.pages()[1]);
  grow(a, 10, 3);  // alone on its page now
  EXPECT_EQ(pool.free_pages(), 5);
  expect_held(a, 0, 100, 1);
  expect_held(b, 0, 100, 1);
  expect_held(a, 100, 110, 3);
  expect_held(b, 100, 110, 2);
}

TEST_F(State, ForkAtAPageBorderCopiesNothing) {
  SequenceState a(pool);
  grow(a, 64, 1);
  SequenceState b = a.fork();
  grow(b, 1, 2);
  grow(a, 1, 3);
  EXPECT_EQ(pool.free_pages(), 5);
  expect_held(a, 64, 65, 3);
  expect_held(b, 64, 65, 2);
}

TEST_F(State, TruncateThenAppendWritesOverOnlyItsOwn) {
  SequenceState a(pool);
  grow(a, 128, 1);
  SequenceState b = a.fork();
  b.truncate(70);
  grow(b, 30, 2);
  expect_held(a, 0, 128, 1);
  expect_held(b, 0, 70, 1);
  expect_held(b, 70, 100, 2);
  EXPECT_THROW(b.truncate(101), Error);
  EXPECT_THROW(b.truncate(-1), Error);
}

TEST_F(State, RollbackReturnsToTheCheckpoint) {
  SequenceState a(pool);
  grow(a, 100, 1);
  const auto point = a.checkpoint();
  grow(a, 60, 2);
  a.truncate(30);
  grow(a, 90, 3);
  a.rollback(point);
  EXPECT_EQ(a.length(), 100);
  expect_held(a, 0, 100, 1);
  EXPECT_EQ(pool.free_pages(), 6);
  grow(a, 1, 4);
  a.rollback(point);  // as often as wanted
  expect_held(a, 0, 100, 1);
  EXPECT_THROW(a.rollback(nullptr), Error);
  KvPool other(compute, small_model(), TensorType::f16, 1);
  SequenceState stranger(other);
  EXPECT_THROW(stranger.rollback(point), Error);
}

TEST_F(State, CheckpointKeepsItsPagesAlive) {
  std::shared_ptr<const SequenceState::Checkpoint> point;
  {
    SequenceState a(pool);
    grow(a, 100, 1);
    point = a.checkpoint();
  }
  EXPECT_EQ(pool.free_pages(), 6);
  SequenceState b(pool);
  grow(b, 64 * 6, 2);  // all other pages
  b.rollback(point);
  expect_held(b, 0, 100, 1);
  b.truncate(0);
  point.reset();
  EXPECT_EQ(pool.free_pages(), 8);
}

TEST_F(State, MovesLeaveNothingBehind) {
  SequenceState a(pool);
  grow(a, 70, 1);
  SequenceState b(std::move(a));
  EXPECT_EQ(b.length(), 70);
  SequenceState c(pool);
  grow(c, 200, 2);
  c = std::move(b);
  expect_held(c, 0, 70, 1);
  EXPECT_EQ(pool.free_pages(), 6);
}

TEST_F(State, AFailedCopyLeavesEverythingAsItWas) {
  SequenceState a(pool);
  grow(a, 10, 1);
  SequenceState b = a.fork();
  for (int after = 0; after < 4; ++after) {
    compute.downloads_until_failure = after;
    EXPECT_THROW(b.append(1), Error);
    compute.downloads_until_failure = -1;
    EXPECT_EQ(b.length(), 10);
    EXPECT_EQ(b.pages()[0], a.pages()[0]);
    EXPECT_EQ(pool.free_pages(), 7);
  }
  grow(b, 1, 2);
  expect_held(a, 0, 10, 1);
}

TEST_F(State, SavedStateLoadsBitEqual) {
  for (const int64_t length : {0, 1, 63, 64, 65, 130}) {
    SequenceState a(pool);
    grow(a, length, 1);
    const std::string bytes = a.save();
    KvPool elsewhere(compute, small_model(), TensorType::f16, 4);
    SequenceState dirt(elsewhere);  // what lay in the pages before must not show
    dirt.append(200);
    dirt.truncate(0);
    SequenceState b(elsewhere);
    b.append(3);
    b.load(bytes);
    EXPECT_EQ(b.length(), length);
    EXPECT_EQ(b.save(), bytes);
    SequenceState c(pool);
    c.load(bytes);
    expect_held(c, 0, length, 1);
  }
}

TEST_F(State, IsSavedAndLoadedInPieces) {
  SequenceState a(pool);
  grow(a, 130, 1);
  const std::string whole = a.save();
  std::string joined;
  size_t largest = 0;
  a.save([&](std::string_view piece) {
    joined += piece;
    largest = std::max(largest, piece.size());
  });
  EXPECT_EQ(joined, whole);
  EXPECT_LE(largest, pool.page_bytes());
  SequenceState b(pool);
  grow(b, 5, 2);
  const std::string before = b.save();
  const auto read_from = [](std::string_view bytes) {
    return [bytes](std::span<std::byte> out) mutable {
      if (out.size() > bytes.size()) fail("there is no more");
      std::memcpy(out.data(), bytes.data(), out.size());
      bytes.remove_prefix(out.size());
    };
  };
  EXPECT_THAT(error_of([&] { b.load(whole.size(), read_from(std::string_view(whole).substr(0, whole.size() / 2))); }),
              testing::HasSubstr("no more"));
  EXPECT_THAT(error_of([&] { a.save([](std::string_view) { fail("the drive is full"); }); }),
              testing::HasSubstr("drive is full"));
  EXPECT_EQ(b.save(), before);
  b.load(whole.size(), read_from(whole));
  EXPECT_EQ(b.save(), whole);
}

TEST_F(State, SavedBytesDependOnThePositionsAlone) {
  SequenceState a(pool);
  grow(a, 100, 2);
  a.truncate(70);
  SequenceState b(pool);
  grow(b, 70, 2);
  EXPECT_EQ(a.save(), b.save());
}

TEST_F(State, RefusesStatesOfOthers) {
  SequenceState a(pool);
  grow(a, 70, 1);
  const std::string bytes = a.save();
  const auto refuses = [&](const HParams& h, TensorType type, int32_t pages, const char* why) {
    KvPool other(compute, h, type, pages);
    SequenceState s(other);
    EXPECT_THAT(error_of([&] { s.load(bytes); }), testing::HasSubstr(why));
    EXPECT_EQ(s.length(), 0);
  };
  refuses(small_model(), TensorType::f32, 8, "holds f16");
  refuses(small_model(), TensorType::f16, 1, "70 positions");
  HParams h = small_model();
  h.layers = 3;
  refuses(h, TensorType::f16, 8, "another shape");
  h = small_model();
  h.name = "somebody else";
  refuses(h, TensorType::f16, 8, "another model");
  SequenceState hog(pool);
  hog.append(64 * 5);
  EXPECT_THAT(error_of([&] { a.load(bytes); }), testing::HasSubstr("full"));
  EXPECT_EQ(a.save(), bytes);
}

TEST_F(State, RefusesDamagedStates) {
  SequenceState a(pool);
  grow(a, 70, 1);
  const std::string good = a.save();
  SequenceState b(pool);
  grow(b, 5, 9);
  const std::string before = b.save();
  Random random(3);
  for (size_t cut = 0; cut < good.size(); cut += cut < 80 ? 1 : 977) {
    EXPECT_THROW(b.load(std::string_view(good).substr(0, cut)), Error) << cut;
  }
  EXPECT_THROW(b.load(good + "x"), Error);
  for (size_t i = 0; i < 300; ++i) {
    std::string bad = good;
    const size_t where = i < 56 ? i : random.next() % bad.size();
    bad[where] = static_cast<char>(bad[where] ^ (1 << (random.next() % 8)));
    EXPECT_THROW(b.load(bad), Error) << where;
  }
  std::string reserved = good;
  reserved[36] = 1;
  EXPECT_THROW(b.load(reserved), Error);
  std::string counted = good;
  for (size_t i = 48; i < 56; ++i) counted[i] = '\xff';  // positions
  EXPECT_THROW(b.load(counted), Error);
  EXPECT_EQ(b.save(), before);
  EXPECT_EQ(pool.free_pages(), 8 - 2 - 1);
}

/// Random operations on several sequences against a plain model of what each should hold.
TEST_F(State, RandomOperationsAgreeWithAPlainModel) {
  struct Shadow {
    SequenceState state;
    std::vector<int> salts;  // of each position
  };
  Random random(99);
  std::vector<Shadow> all;
  all.push_back({SequenceState(pool), {}});
  struct Point {
    std::shared_ptr<const SequenceState::Checkpoint> point;
    std::vector<int> salts;
  };
  std::vector<Point> points;
  for (int step = 1; step <= 1500; ++step) {
    Shadow& s = all[random.next() % all.size()];
    switch (random.next() % 8) {
      case 0:
      case 1:
      case 2: {
        const auto n = static_cast<int64_t>(random.next() % 50);
        try {
          grow(s.state, n, step);
          s.salts.insert(s.salts.end(), static_cast<size_t>(n), step);
        } catch (const Error&) {
        }
        break;
      }
      case 3: {
        const auto keep = static_cast<int64_t>(random.next() % (s.salts.size() + 1));
        s.state.truncate(keep);
        s.salts.resize(static_cast<size_t>(keep));
        break;
      }
      case 4:
        if (all.size() < 5) all.push_back({s.state.fork(), s.salts});
        break;
      case 5:
        if (all.size() > 1) all.erase(all.begin() + static_cast<ptrdiff_t>(random.next() % all.size()));
        break;
      case 6:
        if (points.size() > 2) points.erase(points.begin());
        points.push_back({s.state.checkpoint(), s.salts});
        break;
      default:
        if (!points.empty()) {
          const Point& p = points[random.next() % points.size()];
          s.state.rollback(p.point);
          s.salts = p.salts;
        }
    }
    if (step % 10 != 0) continue;
    std::map<int32_t, int> holders;
    for (const Shadow& shadow : all) {
      ASSERT_EQ(shadow.state.length(), static_cast<int64_t>(shadow.salts.size()));
      for (const int32_t page : shadow.state.pages()) ++holders[page];
      for (size_t p = 0; p < shadow.salts.size(); ++p) {
        expect_held(shadow.state, static_cast<int64_t>(p), static_cast<int64_t>(p) + 1, shadow.salts[p]);
      }
    }
    for (const auto& [page, n] : holders) ASSERT_GE(pool.references(page), n);
  }
  all.clear();
  points.clear();
  EXPECT_EQ(pool.free_pages(), 8);
}

/// A layer with keys and values, one with a latent row, and a recurrent one.
HParams mixed_model() {
  HParams h = small_model();
  h.layers = 3;
  h.kv_shapes = {{2, 6, 10}, {1, 12, 8, true}, {}};
  h.recurrent = {{}, {}, {.channels = 4, .inputs = 2, .state_width = 16, .state_rows = 2, .heads = 1}};
  return h;
}

class MixedState : public testing::Test {
 protected:
  static constexpr int64_t kFloats = 4 * 2 + 16 * 2;
  MemoryCompute compute;
  KvPool pool{compute, mixed_model(), TensorType::f16, 8, 5};

  /// Appends as a batch does, and leaves `value` in the state.
  void grow(SequenceState& s, int64_t n, float value) {
    s.append(n);
    const std::vector<float> state(kFloats, value);
    pool.states().upload(s.slot(), reinterpret_cast<const std::byte*>(state.data()));
  }
  float state_of(const SequenceState& s) const {
    if (s.slot() < 0) return 0;
    std::vector<float> state(kFloats);
    pool.states().download(s.slot(), reinterpret_cast<std::byte*>(state.data()));
    for (const float f : state) EXPECT_EQ(f, state[0]);
    return state[0];
  }
};

TEST_F(MixedState, CountsWhatEachLayerKeeps) {
  EXPECT_EQ(pool.page_bytes(), 2u * 64 * (2 * (6 + 10) + 12)) << "the latent row is kept once";
  EXPECT_EQ(pool.stored().size(), 3u);
  EXPECT_TRUE(pool.layers()[2].k.empty());
  EXPECT_EQ(pool.layers()[1].v.shape[0], 8);
  EXPECT_EQ(pool.layers()[1].v.offset, pool.layers()[1].k.offset);
  EXPECT_EQ(pool.states().bytes(), kFloats * sizeof(float));
  EXPECT_TRUE(pool.states().layers()[0].state.empty());
  EXPECT_EQ(pool.used_bytes(), 0u);
  SequenceState s(pool);
  s.append(1);
  EXPECT_EQ(pool.used_bytes(), pool.page_bytes() + pool.states().bytes());
  KvPool plain(compute, small_model(), TensorType::f16, 1);
  EXPECT_TRUE(plain.states().none());
}

TEST_F(MixedState, IsCutBackToWhatIsKept) {
  SequenceState s(pool);
  EXPECT_EQ(s.slot(), -1);
  grow(s, 10, 1);
  grow(s, 20, 2);
  grow(s, 1, 3);
  grow(s, 1, 4);
  EXPECT_EQ(pool.states().free(), 1);
  EXPECT_EQ(s.truncate(32), 32);
  EXPECT_EQ(state_of(s), 4);
  EXPECT_EQ(s.truncate(31), 31);
  EXPECT_EQ(state_of(s), 3);
  EXPECT_EQ(s.truncate(29), 10);
  EXPECT_EQ(state_of(s), 1);
  EXPECT_EQ(s.truncate(9), 0);
  EXPECT_EQ(s.slot(), -1);
  EXPECT_EQ(pool.states().free(), 5);
  EXPECT_EQ(pool.free_pages(), 8);
}

TEST_F(MixedState, ForksAndCheckpointsShareSlots) {
  SequenceState a(pool);
  grow(a, 10, 1);
  SequenceState b = a.fork();
  const auto point = a.checkpoint();
  EXPECT_EQ(pool.states().references(a.slot()), 3);
  grow(a, 5, 2);
  grow(b, 5, 3);
  EXPECT_EQ(state_of(a), 2);
  EXPECT_EQ(state_of(b), 3);
  a.rollback(point);
  EXPECT_EQ(state_of(a), 1);
  EXPECT_EQ(a.length(), 10);
  grow(a, 1, 4);
  EXPECT_EQ(b.truncate(12), 10);
  EXPECT_EQ(state_of(b), 1);
  SequenceState c(std::move(b));
  EXPECT_EQ(state_of(c), 1);
}

TEST_F(MixedState, ForgetsKeptStatesBeforeItFails) {
  SequenceState a(pool), b(pool), c(pool);
  grow(a, 4, 1);
  grow(a, 4, 2);
  grow(a, 4, 3);
  grow(b, 4, 4);
  grow(c, 4, 5);
  EXPECT_EQ(pool.states().free(), 0);
  grow(a, 4, 6);  // in the place of what it could be cut back to
  EXPECT_EQ(state_of(a), 6);
  EXPECT_EQ(a.truncate(12), 12);
  EXPECT_EQ(state_of(a), 3);
  grow(a, 1, 7);
  const std::string before = c.save();
  EXPECT_THAT(error_of([&] { c.append(1); }), testing::HasSubstr("5 slots are in use"));
  EXPECT_EQ(c.save(), before);
}

TEST(BlockKeys, PagesHoldThemWhereTheirBlockEnds) {
  MemoryCompute compute;
  HParams h = small_model();
  h.layers = 3;
  h.kv_shapes = {{1, 12, 12, true}, {1, 12, 12, true, 4, 6}, {1, 12, 12, true, 128}};
  const KvPool pool(compute, h, TensorType::f16, 8);
  ASSERT_EQ(pool.stored().size(), 6u);
  EXPECT_EQ(pool.page_bytes(), 2u * (64 * 12 * 3 + 16 * (12 + 6) + 12));
  EXPECT_TRUE(pool.layers()[0].blocks.empty());
  EXPECT_EQ(pool.layers()[1].blocks.shape[1], 16);
  EXPECT_EQ(pool.layers()[1].block_index.shape[0], 6);
  EXPECT_EQ(pool.layers()[2].blocks.shape[1], 1);
  EXPECT_TRUE(pool.layers()[2].block_index.empty());
  EXPECT_EQ(pool.rows_held(0, 3, 17), 17);
  EXPECT_EQ(pool.rows_held(2, 3, 17), 4);
  EXPECT_EQ(pool.rows_held(2, 0, 3), 0);
  EXPECT_EQ(pool.rows_held(5, 0, 64), 0);
  EXPECT_EQ(pool.rows_held(5, 1, 63), 0);
  EXPECT_EQ(pool.rows_held(5, 1, 64), 1);
  EXPECT_EQ(pool.rows_held(5, 2, 64), 0);
}

TEST_F(MixedState, IsSavedWithItsState) {
  SequenceState a(pool);
  const std::string empty = a.save();
  EXPECT_EQ(empty.size(), a.saved_bytes());
  grow(a, 70, 9);
  const std::string bytes = a.save();
  EXPECT_EQ(bytes.size(), a.saved_bytes());
  SequenceState b(pool);
  b.load(bytes);
  EXPECT_EQ(state_of(b), 9);
  EXPECT_EQ(b.save(), bytes);
  b.load(empty);
  EXPECT_EQ(b.slot(), -1);
  EXPECT_THROW(b.load(std::string_view(bytes).substr(0, bytes.size() - kFloats * sizeof(float))), Error);
}

}  // namespace
}  // namespace moetier
