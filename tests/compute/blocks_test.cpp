// Keys of blocks of positions: made, stored, chosen and attended to, against plain formulas in float64, and the same
// however rows are cut and shared among threads. Residual streams likewise.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

constexpr int64_t kPages = 6, kSlots = 3;

/// Positions [first, first + n) of one sequence, whose pages lie in reverse order.
BatchRows rows_of(Rig& rig, int64_t first, int64_t n, int32_t from_slot, int32_t to_slot) {
  Ints positions(static_cast<size_t>(n)), pages(kPages);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  std::iota(pages.rbegin(), pages.rend(), 0);
  const Ints zeros(static_cast<size_t>(n), 0);
  BatchRows rows;
  rows.tokens = rows.positions = rig.ints({n, 1, 1, 1}, positions);
  rows.sequences = rig.ints({n, 1, 1, 1}, zeros);
  rows.page_table = rig.ints({kPages, 1, 1, 1}, pages);
  rows.states_from = rig.ints({n, 1, 1, 1}, Ints(static_cast<size_t>(n), from_slot));
  rows.states_to = rig.ints({n, 1, 1, 1}, Ints(static_cast<size_t>(n), to_slot));
  return rows;
}

Floats part(const Floats& all, int64_t width, int64_t first, int64_t n) {
  return {all.begin() + first * width, all.begin() + (first + n) * width};
}

struct BlockCase {
  int64_t width, ratio;
  bool overlapping;
  int64_t positions;
  int64_t channels() const { return overlapping ? 2 * width : width; }
};

struct Given {
  Floats values, gates, bias;
  explicit Given(const BlockCase& c)
      : values(noise(static_cast<size_t>(c.channels() * c.positions), 1)),
        gates(noise(static_cast<size_t>(c.channels() * c.positions), 2, 2.0f)),
        bias(noise(static_cast<size_t>(c.channels() * c.ratio), 3)) {}
};

/// What compress() gives for all positions, in ubatches of so many rows.
Floats compressed(Rig& rig, const BlockCase& c, int64_t ubatch) {
  const Given given(c);
  CompressParams params;
  params.ratio = c.ratio;
  params.overlapping = c.overlapping;
  params.bias = rig.floats({c.channels(), c.ratio, 1, 1}, given.bias);
  const Tensor memory =
      rig.floats({2 * c.channels(), params.remembered(), kSlots, 1},
                 Floats(static_cast<size_t>(2 * c.channels() * params.remembered() * kSlots), 7.0f));  // stale
  Floats all;
  int32_t slot = -1;
  for (int64_t first = 0; first < c.positions; first += ubatch) {
    const int64_t n = std::min(ubatch, c.positions - first);
    params.values = rig.floats({c.channels(), n, 1, 1}, part(given.values, c.channels(), first, n));
    params.gates = rig.floats({c.channels(), n, 1, 1}, part(given.gates, c.channels(), first, n));
    const Tensor out = rig.floats({c.width, n, 1, 1});
    const int32_t to = (slot + 1) % static_cast<int32_t>(kSlots);
    rig->compress(params, rows_of(rig, first, n, slot, to), memory, out);
    slot = to;
    const Floats got = rig.read(out);
    all.insert(all.end(), got.begin(), got.end());
  }
  return all;
}

/// The same in float64; 0 for positions that end no block.
std::vector<double> compressed_plainly(const BlockCase& c) {
  const Given given(c);
  std::vector<double> out(static_cast<size_t>(c.width * c.positions), 0.0);
  for (int64_t p = c.ratio - 1; p < c.positions; p += c.ratio) {
    const int64_t start = p + 1 - c.ratio, oldest = c.overlapping ? std::max<int64_t>(0, start - c.ratio) : start;
    for (int64_t i = 0; i < c.width; ++i) {
      double sum = 0, total = 0;
      for (int64_t q = oldest; q <= p; ++q) {
        const int64_t column = c.overlapping && q >= start ? c.width + i : i;
        const auto at = static_cast<size_t>(q * c.channels() + column);
        const auto bias = static_cast<size_t>(q % c.ratio * c.channels() + column);
        const double e = std::exp(static_cast<double>(given.gates[at]) + static_cast<double>(given.bias[bias]));
        total += e;
        sum += e * static_cast<double>(given.values[at]);
      }
      out[static_cast<size_t>(p * c.width + i)] = sum / total;
    }
  }
  return out;
}

TEST(Compress, FollowsTheFormulaHoweverRowsAreCut) {
  for (const BlockCase& c : {BlockCase{40, 4, true, 70}, BlockCase{300, 4, true, 9}, BlockCase{24, 128, false, 260},
                             BlockCase{8, 8, false, 20}}) {
    const Floats got = same_everywhere([&](Rig& rig) { return compressed(rig, c, 512); });
    const std::vector<double> want = compressed_plainly(c);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << c.ratio << ", element " << i;
    for (const int64_t ubatch : {1, 3, 7, 64}) {
      Rig rig(Isa::automatic, 2);
      expect_same_bits(compressed(rig, c, ubatch), got, "ubatch " + std::to_string(ubatch));
    }
  }
}

TEST(Compress, SequencesDoNotMix) {
  const BlockCase c{16, 4, true, 24};
  const Given given(c);
  Rig rig;
  const Floats alone = compressed(rig, c, 512);
  // Each row twice: sequence 0, then sequence 1 with other values.
  const Floats others = noise(given.values.size(), 9);
  Floats values, gates;
  Ints sequences, positions, to;
  for (int64_t p = 0; p < c.positions; ++p) {
    for (int32_t s = 0; s < 2; ++s) {
      const Floats v = part(s == 0 ? given.values : others, c.channels(), p, 1);
      const Floats g = part(given.gates, c.channels(), p, 1);
      values.insert(values.end(), v.begin(), v.end());
      gates.insert(gates.end(), g.begin(), g.end());
      sequences.push_back(s);
      positions.push_back(static_cast<int32_t>(p));
      to.push_back(2 - s);
    }
  }
  const int64_t n = 2 * c.positions;
  BatchRows rows;
  rows.positions = rig.ints({n, 1, 1, 1}, positions);
  rows.sequences = rig.ints({n, 1, 1, 1}, sequences);
  rows.page_table = rig.ints({1, 2, 1, 1}, {0, 1});
  rows.states_from = rig.ints({n, 1, 1, 1}, Ints(static_cast<size_t>(n), -1));
  rows.states_to = rig.ints({n, 1, 1, 1}, to);
  const CompressParams params{.values = rig.floats({c.channels(), n, 1, 1}, values),
                              .gates = rig.floats({c.channels(), n, 1, 1}, gates),
                              .bias = rig.floats({c.channels(), c.ratio, 1, 1}, given.bias),
                              .ratio = c.ratio,
                              .overlapping = true};
  const Tensor out = rig.floats({c.width, n, 1, 1});
  rig->compress(params, rows, rig.floats({2 * c.channels(), 8, kSlots, 1}), out);
  const Floats got = rig.read(out);
  Floats first;
  for (int64_t p = 0; p < c.positions; ++p) {
    const Floats row = part(got, c.width, 2 * p, 1);
    first.insert(first.end(), row.begin(), row.end());
  }
  expect_same_bits(first, alone, "interleaved");
}

// --- choice and attention ---

/// A layer whose positions [0, n) and blocks of `ratio` of them are stored, from noise.
struct Stored {
  KvLayer layer;
  Floats keys, blocks;
};

Stored store(Rig& rig, int64_t width, int64_t ratio, int64_t n, TensorType type, unsigned seed = 5) {
  Stored s;
  s.keys = noise(static_cast<size_t>(width * n), seed);
  s.blocks = noise(static_cast<size_t>(width * n), seed + 1);  // of rows that end one
  s.layer.k = rig.make(type, {width, kPagePositions, 1, kPages});
  s.layer.v = s.layer.k;
  s.layer.blocks = rig.make(type, {width, entries_per_page(ratio), 1, kPages});
  const BatchRows rows = rows_of(rig, 0, n, 0, 0);
  rig->store_kv(rig.floats({width, 1, n, 1}, s.keys), {}, rows, s.layer);
  rig->store_blocks(rig.floats({width, n, 1, 1}, s.blocks), rows, ratio, s.layer.blocks);
  if (type == TensorType::f16) {
    for (Floats* all : {&s.keys, &s.blocks})
      for (float& x : *all) x = f16_to_f32(f32_to_f16(x));
  }
  return s;
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// The row that the last position of a block holds.
const float* block_row(const Stored& s, int64_t width, int64_t ratio, int64_t block) {
  return s.blocks.data() + ((block + 1) * ratio - 1) * width;
}

TEST(ChooseBlocks, TakesTheBestVisibleOnesAscending) {
  const int64_t width = 40, heads = 5, ratio = 4, n = 380, top_k = 6;
  const Floats q = noise(static_cast<size_t>(width * heads * n), 11);
  const Floats weights = noise(static_cast<size_t>(heads * n), 12);
  const auto choose = [&](Rig& rig, int64_t first, int64_t count) {
    const Stored s = store(rig, width, ratio, n, TensorType::f32);
    const Tensor picks = rig.make(TensorType::i32, {top_k, count, 1, 1});
    rig->choose_blocks({.query = rig.floats({width, heads, count, 1}, part(q, width * heads, first, count)),
                        .weights = rig.floats({heads, count, 1, 1}, part(weights, heads, first, count)),
                        .scale = 0.5f,
                        .ratio = ratio,
                        .top_k = top_k},
                       rows_of(rig, first, count, 0, 0), s.layer.blocks, picks);
    const Ints got = rig.read_ints(picks);
    return Floats(got.begin(), got.end());
  };
  const Floats all = same_everywhere([&](Rig& rig) { return choose(rig, 0, n); });
  Rig rig;
  const Stored s = store(rig, width, ratio, n, TensorType::f32);
  for (int64_t r = 0; r < n; ++r) {
    const int64_t whole = (r + 1) / ratio;
    std::vector<std::pair<double, int32_t>> scores;
    for (int32_t b = 0; b < whole; ++b) {
      double score = 0;
      for (int64_t h = 0; h < heads; ++h)
        score += static_cast<double>(weights[static_cast<size_t>(r * heads + h)]) *
                 std::max(0.0, dot(q.data() + (r * heads + h) * width, block_row(s, width, ratio, b), width));
      scores.emplace_back(-score, b);
    }
    std::sort(scores.begin(), scores.end());
    Ints want;
    for (int64_t i = 0; i < std::min(whole, top_k); ++i) want.push_back(scores[static_cast<size_t>(i)].second);
    std::sort(want.begin(), want.end());
    want.resize(static_cast<size_t>(top_k), -1);
    for (int64_t i = 0; i < top_k; ++i)
      ASSERT_EQ(static_cast<int32_t>(all[static_cast<size_t>(r * top_k + i)]), want[static_cast<size_t>(i)]) << r;
  }
  expect_same_bits(choose(rig, 379, 1), part(all, top_k, 379, 1), "a row by itself");
}

TEST(ChooseBlocks, OfEqualScoresTakesTheLower) {
  Rig rig;
  const Stored s = store(rig, 16, 4, 64, TensorType::f32);
  const Tensor picks = rig.make(TensorType::i32, {3, 1, 1, 1});
  rig->choose_blocks({.query = rig.floats({16, 2, 1, 1}),  // all scores are 0
                      .weights = rig.floats({2, 1, 1, 1}, {1, 1}),
                      .ratio = 4,
                      .top_k = 3},
                     rows_of(rig, 63, 1, 0, 0), s.layer.blocks, picks);
  EXPECT_EQ(rig.read_ints(picks), (Ints{0, 1, 2}));
}

struct AttendCase {
  int64_t width, heads, ratio, window, top_k;  ///< top_k 0: all blocks
  TensorType type;
};

TEST(BlockAttention, SeesTheWindowAndBlocks) {
  const int64_t n = 340;
  for (const AttendCase& c :
       {AttendCase{32, 4, 4, 24, 9, TensorType::f32}, AttendCase{48, 3, 128, 70, 0, TensorType::f32},
        AttendCase{40, 5, 4, 130, 0, TensorType::f16}}) {
    const Floats q = noise(static_cast<size_t>(c.width * c.heads * n), 21, 2.0f);
    const Floats sinks = noise(static_cast<size_t>(c.heads), 22);
    const auto seen = [&](int64_t r) {  // every third block, the newest top_k of them
      std::vector<int64_t> blocks;
      for (int64_t b = 0; b < (r + 1) / c.ratio; ++b) {
        if (c.top_k == 0 || b % 3 == r % 3) blocks.push_back(b);
      }
      if (c.top_k > 0 && std::ssize(blocks) > c.top_k) blocks.erase(blocks.begin(), blocks.end() - c.top_k);
      return blocks;
    };
    const auto attend = [&](Rig& rig, int64_t first, int64_t count) {
      const Stored s = store(rig, c.width, c.ratio, n, c.type);
      AttentionParams params{.scale = 0.2f, .window = c.window, .ratio = c.ratio};
      params.sinks = rig.floats({c.heads, 1, 1, 1}, sinks);
      Ints picks;
      for (int64_t r = first; c.top_k > 0 && r < first + count; ++r) {
        for (const int64_t b : seen(r)) picks.push_back(static_cast<int32_t>(b));
        picks.resize(static_cast<size_t>((r + 1 - first) * c.top_k), -1);
      }
      if (c.top_k > 0) params.picks = rig.ints({c.top_k, count, 1, 1}, picks);
      const Tensor out = rig.floats({c.width, c.heads, count, 1});
      rig->attention(rig.floats({c.width, c.heads, count, 1}, part(q, c.width * c.heads, first, count)),
                     rows_of(rig, first, count, 0, 0), s.layer, params, out);
      return rig.read(out);
    };
    const Floats all = same_everywhere([&](Rig& rig) { return attend(rig, 0, n); });
    Rig rig(Isa::automatic, 2);
    expect_same_bits(attend(rig, 339, 1), part(all, c.width * c.heads, 339, 1), "a row by itself");
    expect_same_bits(attend(rig, 7, 5), part(all, c.width * c.heads, 7, 5), "a few rows");
    const Stored s = store(rig, c.width, c.ratio, n, c.type);
    for (int64_t r = 0; r < n; r += 13) {
      std::vector<const float*> rows;
      for (int64_t p = std::max<int64_t>(0, r + 1 - c.window); p <= r; ++p) rows.push_back(s.keys.data() + p * c.width);
      for (const int64_t b : seen(r)) rows.push_back(block_row(s, c.width, c.ratio, b));
      for (int64_t h = 0; h < c.heads; ++h) {
        const float* query = q.data() + (r * c.heads + h) * c.width;
        double total = std::exp(static_cast<double>(sinks[static_cast<size_t>(h)]));
        std::vector<double> sum(static_cast<size_t>(c.width), 0.0);
        for (const float* row : rows) {
          const double e = std::exp(0.2 * dot(query, row, c.width));
          total += e;
          for (int64_t i = 0; i < c.width; ++i) sum[static_cast<size_t>(i)] += e * static_cast<double>(row[i]);
        }
        for (int64_t i = 0; i < c.width; ++i)
          ASSERT_NEAR(all[static_cast<size_t>((r * c.heads + h) * c.width + i)], sum[static_cast<size_t>(i)] / total,
                      1e-5)
              << "row " << r << ", head " << h;
      }
    }
  }
}

TEST(BlockAttention, WrongOperandsAreErrors) {
  Rig rig;
  const Stored s = store(rig, 16, 4, 64, TensorType::f32);
  const BatchRows rows = rows_of(rig, 63, 1, 0, 0);
  const Tensor q = rig.floats({16, 2, 1, 1}), out = rig.floats({16, 2, 1, 1});
  const auto attend = [&](const AttentionParams& params, const KvLayer& layer) {
    rig->attention(q, rows, layer, params, out);
  };
  EXPECT_NO_THROW(attend({.window = 8, .ratio = 4}, s.layer));
  EXPECT_THROW(attend({.window = 8, .ratio = 5}, s.layer), Error) << "blocks that fit no page";
  EXPECT_THROW(attend({.window = 8, .ratio = 8}, s.layer), Error) << "blocks stored with another ratio";
  EXPECT_THROW(attend({.ratio = 4}, s.layer), Error) << "no window";
  EXPECT_THROW(attend({.window = 8, .ratio = 4, .picks = rig.ints({1, 1, 1, 1}, {16})}, s.layer), Error)
      << "a block that has not ended";
  KvLayer apart = s.layer;
  apart.v = rig.floats({16, kPagePositions, 1, kPages});
  EXPECT_THROW(attend({.window = 8, .ratio = 4}, apart), Error) << "values of their own";
  EXPECT_THROW(rig->store_blocks(rig.floats({16, 1, 1, 1}), rows, 3, s.layer.blocks), Error);
}

// --- streams ---

TEST(Streams, AreJoinedAndSpread) {
  const int64_t streams = 4, width = 700, n = 9, numbers = streams * (2 + streams);
  const Floats mixed = noise(static_cast<size_t>(numbers * n), 31), base = noise(static_cast<size_t>(numbers), 32);
  const Floats x = noise(static_cast<size_t>(streams * width * n), 33), y = noise(static_cast<size_t>(width * n), 34);
  const float eps = 1e-3f;
  const auto run = [&](Rig& rig) {
    const StreamParams params{.streams = streams,
                              .iterations = 3,
                              .eps = eps,
                              .scale = rig.floats({3, 1, 1, 1}, {0.5f, 0.8f, 1.5f}),
                              .base = rig.floats({numbers, 1, 1, 1}, base)};
    const Tensor weights = rig.floats({numbers, n, 1, 1}), joined = rig.floats({width, n, 1, 1});
    const Tensor all = rig.floats({streams * width, n, 1, 1}, x);
    rig->stream_weights(params, rig.floats({numbers, n, 1, 1}, mixed), weights);
    rig->join_streams(params, all, weights, joined);
    rig->spread_streams(params, rig.floats({width, n, 1, 1}, y), weights, all);
    Floats out;
    for (const Tensor* t : {&weights, &joined, &all}) {
      const Floats part_of = rig.read(*t);
      out.insert(out.end(), part_of.begin(), part_of.end());
    }
    return out;
  };
  const Floats got = same_everywhere(run);
  const auto sigmoid = [](double v) { return 1.0 / (1.0 + std::exp(-v)); };
  for (size_t r = 0; r < n; ++r) {
    std::vector<double> w(numbers);
    const size_t at = r * numbers;
    for (size_t i = 0; i < numbers; ++i) {
      const double scale = i < 4 ? 0.5 : i < 8 ? 0.8 : 1.5;
      const double v = static_cast<double>(mixed[at + i]) * static_cast<double>(static_cast<float>(scale)) +
                       static_cast<double>(base[i]);
      w[i] = i < 4 ? sigmoid(v) + static_cast<double>(eps) : i < 8 ? 2 * sigmoid(v) : std::exp(v);
    }
    const auto cell = [&](size_t to, size_t from) -> double& { return w[8 + from * 4 + to]; };
    const auto balance = [&](bool over_to, double more) {
      for (size_t a = 0; a < 4; ++a) {
        double sum = 0;
        for (size_t b = 0; b < 4; ++b) sum += over_to ? cell(b, a) : cell(a, b);
        for (size_t b = 0; b < 4; ++b) (over_to ? cell(b, a) : cell(a, b)) /= sum + more;
      }
    };
    balance(true, 0.0);
    for (size_t i = 8; i < numbers; ++i) w[i] += static_cast<double>(eps);
    balance(false, static_cast<double>(eps));
    for (int i = 1; i < 3; ++i) {
      balance(true, static_cast<double>(eps));
      balance(false, static_cast<double>(eps));
    }
    for (size_t i = 0; i < numbers; ++i) ASSERT_NEAR(got[at + i], w[i], 2e-6) << i;
    for (size_t c = 0; c < width; c += 37) {
      const auto stream = [&](size_t s) { return static_cast<double>(x[(r * 4 + s) * width + c]); };
      double joined = 0;
      for (size_t s = 0; s < 4; ++s) joined += w[s] * stream(s);
      ASSERT_NEAR(got[numbers * n + r * width + c], joined, 1e-5);
      for (size_t t = 0; t < 4; ++t) {
        double spread = w[4 + t] * static_cast<double>(y[r * width + c]);
        for (size_t s = 0; s < 4; ++s) spread += cell(t, s) * stream(s);
        ASSERT_NEAR(got[numbers * n + width * n + (r * 4 + t) * width + c], spread, 1e-5);
      }
    }
  }
}

TEST(Clamp, KeepsWithinBounds) {
  const Floats got = same_everywhere([](Rig& rig) {
    const Tensor x = rig.floats({5, 1, 1, 1}, {-3, -1, 0.5f, 2, NAN});
    rig->clamp(-1.0f, 1.5f, x, x);
    return rig.read(x);
  });
  expect_same_bits(got, {-1, -1, 0.5f, 1.5f, NAN}, "clamped");
}

TEST(GetRows, OfWholeNumbersGivesThemAsTheyAre) {
  Rig rig;
  const Tensor table = rig.ints({2, 3, 1, 1}, {1, 2, 3, 4, 1 << 30, -6});
  const Tensor wide = rig.make(TensorType::i32, {5, 2, 1, 1});
  rig->get_rows(table, rig.ints({2, 1, 1, 1}, {2, 0}), wide.slice_columns(3, 2));
  EXPECT_EQ(rig.read_ints(wide), (Ints{0, 0, 0, 1 << 30, -6, 0, 0, 0, 1, 2}));
  EXPECT_THROW(rig->get_rows(table, rig.ints({1, 1, 1, 1}, {3}), wide.slice_columns(0, 2).head_rows(1)), Error);
}

}  // namespace
}  // namespace moetier
