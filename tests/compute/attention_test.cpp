#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute_fixture.h"
#include "quant/codec.h"

namespace moetier {
namespace {

using namespace testing_compute;

struct Shape {
  int64_t dk = 64, dv = 64, heads = 4, kv_heads = 2;
  TensorType type = TensorType::f32, v_type = TensorType::f32;
  int64_t window = 0;
  float scale = 0.125f;
  Floats sinks = {};  ///< per head
  int64_t chunk = 0;
};

/// Several sequences with all their keys and values, and the queries that stand at some positions.
struct Case {
  Shape shape;
  Ints lengths;               ///< per sequence
  Ints sequences, positions;  ///< of the query rows
  std::vector<Floats> k, v;   ///< per sequence [width, kv heads, length]
  Floats q;                   ///< [dk, heads, rows]
};

Case make_case(const Shape& shape, const Ints& lengths, const Ints& sequences, const Ints& positions,
               unsigned seed = 1) {
  Case c{shape, lengths, sequences, positions, {}, {}, {}};
  for (const int32_t length : lengths) {
    c.k.push_back(noise(static_cast<size_t>(shape.dk * shape.kv_heads * length), ++seed));
    c.v.push_back(noise(static_cast<size_t>(shape.dv * shape.kv_heads * length), ++seed));
  }
  c.q = noise(static_cast<size_t>(shape.dk * shape.heads) * positions.size(), ++seed, 2.0f);
  return c;
}

/// The last `rows` positions of one sequence.
Case tail_case(const Shape& shape, int32_t length, int32_t rows) {
  Ints positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), length - rows);
  return make_case(shape, {length}, Ints(static_cast<size_t>(rows), 0), positions);
}

/// The pages of all sequences, dealt out in turn so that neighbours in memory belong to different sequences.
struct Paged {
  KvLayer layer;
  Tensor table;
};

BatchRows batch_of(Rig& rig, const Tensor& table, const Ints& sequences, const Ints& positions) {
  const int64_t n = static_cast<int64_t>(positions.size());
  BatchRows rows;
  rows.tokens = rig.ints({n, 1, 1, 1}, Ints(positions.size()));
  rows.positions = rig.ints({n, 1, 1, 1}, positions);
  rows.sequences = rig.ints({n, 1, 1, 1}, sequences);
  rows.page_table = table;
  return rows;
}

Paged store_all(Rig& rig, const Case& c) {
  const int64_t count = static_cast<int64_t>(c.lengths.size());
  const int64_t blocks = (*std::max_element(c.lengths.begin(), c.lengths.end()) + 63) / 64;
  Ints table(static_cast<size_t>(blocks * count), -1);
  int32_t pages = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t s = count - 1; s >= 0; --s) {
      if (b * 64 < c.lengths[static_cast<size_t>(s)]) table[static_cast<size_t>(s * blocks + b)] = pages++;
    }
  }
  Paged paged;
  paged.table = rig.ints({blocks, count, 1, 1}, table);
  paged.layer.k = rig.make(c.shape.type, {c.shape.dk, 64, c.shape.kv_heads, pages});
  paged.layer.v = rig.make(c.shape.v_type, {c.shape.dv, 64, c.shape.kv_heads, pages});
  for (int32_t s = 0; s < count; ++s) {
    const int32_t n = c.lengths[static_cast<size_t>(s)];
    Ints positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), 0);
    rig->store_kv(rig.floats({c.shape.dk, c.shape.kv_heads, n, 1}, c.k[static_cast<size_t>(s)]),
                  rig.floats({c.shape.dv, c.shape.kv_heads, n, 1}, c.v[static_cast<size_t>(s)]),
                  batch_of(rig, paged.table, Ints(static_cast<size_t>(n), s), positions), paged.layer);
  }
  return paged;
}

/// Rows [first, last) of the case in one call.
Floats attend(Rig& rig, const Case& c, const Paged& paged, size_t first, size_t last) {
  const int64_t n = static_cast<int64_t>(last - first), row = c.shape.dk * c.shape.heads;
  const auto part = [&](const Ints& v) {
    return Ints(v.begin() + static_cast<int64_t>(first), v.begin() + static_cast<int64_t>(last));
  };
  const Floats q(c.q.begin() + static_cast<int64_t>(first) * row, c.q.begin() + static_cast<int64_t>(last) * row);
  const Tensor out = rig.floats({c.shape.dv, c.shape.heads, n, 1});
  AttentionParams params;
  params.scale = c.shape.scale;
  params.window = c.shape.window;
  params.chunk = c.shape.chunk;
  if (!c.shape.sinks.empty()) params.sinks = rig.floats({c.shape.heads, 1, 1, 1}, c.shape.sinks);
  rig->attention(rig.floats({c.shape.dk, c.shape.heads, n, 1}, q),
                 batch_of(rig, paged.table, part(c.sequences), part(c.positions)), paged.layer, params, out);
  return rig.read(out);
}

Floats attend_all(Rig& rig, const Case& c) {
  const Paged paged = store_all(rig, c);
  return attend(rig, c, paged, 0, c.positions.size());
}

/// What a cache of that type gives back for rows of a multiple of 32 (q8_0) or any numbers (else).
Floats stored(Floats x, TensorType type) {
  if (type == TensorType::f16) {
    for (float& f : x) f = f16_to_f32(f32_to_f16(f));
  }
  if (type != TensorType::q8_0) return x;
  for (size_t b = 0; b < x.size(); b += 32) {
    float peak = 0;
    for (size_t i = b; i < b + 32; ++i) peak = std::max(peak, std::fabs(x[i]));
    const float d = f16_to_f32(f32_to_f16(num::round_scale(peak * (1.0f / 127.0f))));
    for (size_t i = b; i < b + 32; ++i) x[i] = d * std::nearbyint(x[i] * (127.0f * num::recip(peak)));
  }
  return x;
}

Case as_stored(Case c) {
  for (Floats& k : c.k) k = stored(k, c.shape.type);
  for (Floats& v : c.v) v = stored(v, c.shape.v_type);
  return c;
}

/// One row and head in float64; the case as it is stored.
std::vector<double> reference(const Case& c, size_t row, int64_t head) {
  const Shape& s = c.shape;
  const size_t sequence = static_cast<size_t>(c.sequences[row]);
  const int64_t position = c.positions[row], kv_head = head / (s.heads / s.kv_heads);
  const int64_t first = s.chunk > 0    ? position / s.chunk * s.chunk
                        : s.window > 0 ? std::max<int64_t>(0, position - s.window + 1)
                                       : 0;
  const float* q = c.q.data() + (static_cast<int64_t>(row) * s.heads + head) * s.dk;
  std::vector<double> score, out(static_cast<size_t>(s.dv));
  for (int64_t j = first; j <= position; ++j) {
    const float* k = c.k[sequence].data() + (j * s.kv_heads + kv_head) * s.dk;
    double dot = 0;
    for (int64_t i = 0; i < s.dk; ++i) dot += static_cast<double>(q[i]) * k[i];
    score.push_back(dot * s.scale);
  }
  if (!s.sinks.empty()) score.push_back(s.sinks[static_cast<size_t>(head)]);
  const double m = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& x : score) sum += x = std::exp(x - m);
  for (int64_t j = first; j <= position; ++j) {
    const float* v = c.v[sequence].data() + (j * s.kv_heads + kv_head) * s.dv;
    const double p = score[static_cast<size_t>(j - first)] / sum;
    for (int64_t i = 0; i < s.dv; ++i) out[static_cast<size_t>(i)] += p * v[i];
  }
  return out;
}

void expect_close(const Case& original, const Floats& got) {
  const Case c = as_stored(original);
  for (size_t r = 0; r < c.positions.size(); ++r) {
    for (int64_t h = 0; h < c.shape.heads; ++h) {
      const std::vector<double> want = reference(c, r, h);
      const float* row = got.data() + (static_cast<int64_t>(r) * c.shape.heads + h) * c.shape.dv;
      for (int64_t i = 0; i < c.shape.dv; ++i) ASSERT_NEAR(row[i], want[static_cast<size_t>(i)], 6e-6) << r << " " << h;
    }
  }
}

TEST(Attention, CloseToFloat64InManyShapes) {
  const Shape shapes[] = {{24, 24, 4, 2}, {48, 48, 3, 1}, {64, 64, 4, 4}, {80, 80, 2, 1},   {128, 128, 8, 1},
                          {20, 12, 4, 2}, {1, 1, 2, 2},   {33, 65, 1, 1}, {192, 128, 2, 1}, {16, 8, 6, 2}};
  for (Shape shape : shapes) {
    shape.scale = 1.0f / std::sqrt(static_cast<float>(shape.dk));
    for (const TensorType type : {TensorType::f32, TensorType::f16}) {
      shape.type = shape.v_type = type;
      for (const auto& [length, rows] : {std::pair{1, 1}, {5, 5}, {64, 1}, {65, 3}, {150, 40}}) {
        const Case c = tail_case(shape, length, rows);
        expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
      }
    }
  }
}

TEST(Attention, SeesItsChunkOnly) {
  for (const int64_t chunk : {1, 7, 50, 64, 128, 1000}) {
    Shape shape;
    shape.chunk = chunk;
    const Case c = tail_case(shape, 300, 120);
    expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
  }
  Rig rig;
  Shape both;
  both.chunk = both.window = 4;
  EXPECT_THROW(attend_all(rig, tail_case(both, 9, 2)), Error);
}

TEST(Attention, KeysAndValuesMayDifferInType) {
  Shape shape;
  shape.type = TensorType::f16;
  const Case c = tail_case(shape, 100, 7);
  expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
}

TEST(Attention, Q8_0) {
  for (const auto& [dk, dv, heads, kv_heads] :
       {std::tuple{32, 64, 3, 1}, {128, 128, 8, 1}, {96, 32, 4, 4}, {64, 64, 28, 4}}) {
    Shape shape;
    shape.dk = dk;
    shape.dv = dv;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.type = shape.v_type = TensorType::q8_0;
    for (const auto& [length, rows] : {std::pair{1, 1}, {65, 3}, {150, 40}, {700, 2}}) {
      const Case c = tail_case(shape, length, rows);
      expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
    }
  }
}

TEST(Attention, Q8_0StaysNearWhatWasStored) {
  Shape shape;
  shape.dk = shape.dv = 96;
  shape.type = shape.v_type = TensorType::q8_0;
  const Case c = make_case(shape, {3}, {0}, {2});
  std::vector<std::byte> want;
  for (const Isa isa : available_isas()) {
    Rig rig(isa, 2);
    const Paged paged = store_all(rig, c);
    std::vector<std::byte> bytes(paged.layer.k.bytes());
    rig->download(paged.layer.k, bytes.data());
    if (want.empty()) want = bytes;
    EXPECT_EQ(bytes, want) << rig->name();
    for (size_t row = 0; row < 6; ++row) {
      const size_t at = (row % 2 * 64 + row / 2) * paged.layer.k.row_stride;
      Floats decoded(96);
      decode(TensorType::q8_0, bytes.data() + at, decoded.data(), 96);
      for (size_t i = 0; i < 96; ++i) {
        float peak = 0;
        for (size_t k = i - i % 32; k < i - i % 32 + 32; ++k) peak = std::max(peak, std::fabs(c.k[0][row * 96 + k]));
        EXPECT_NEAR(decoded[i], c.k[0][row * 96 + i], peak / 127 * 0.57f);
      }
    }
  }
}

TEST(Attention, Windows) {
  for (const int64_t window : {1, 3, 63, 64, 65, 100, 1000}) {
    Shape shape;
    shape.window = window;
    shape.type = shape.v_type = window % 2 == 0 ? TensorType::f16 : TensorType::f32;
    const Case c = tail_case(shape, 200, 140);
    expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
  }
}

TEST(Attention, SinksTakeTheirShareOfTheSoftmax) {
  for (const int64_t window : {0, 3, 100}) {
    for (const auto& [length, rows] : {std::pair{1, 1}, {65, 3}, {150, 40}}) {
      Shape shape;
      shape.heads = 6;
      shape.window = window;
      shape.type = shape.v_type = TensorType::f16;
      shape.sinks = {0.5f, -2.0f, 3.0f, 40.0f, -60.0f, 0.0f};  // also far above and far below all scores
      const Case c = tail_case(shape, length, rows);
      expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
    }
  }
  // Split over blocks, where there are threads for it.
  Shape shape;
  shape.dk = shape.dv = 32;
  shape.sinks = {1.0f, -1.0f, 4.0f, 0.0f};
  const Case c = tail_case(shape, 1500, 2);
  expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
}

TEST(Attention, ASinkIsMergedAsTheLastBlock) {
  Shape shape;
  shape.heads = shape.kv_heads = 1;
  shape.window = 1;  // m = the score, l = 1, o = the value
  shape.sinks = {0.25f};
  const Case c = tail_case(shape, 3, 1);
  Rig rig;
  const Floats got = attend_all(rig, c);
  shape.sinks = {};
  float partial[16] = {};
  for (size_t i = 0; i < 64; ++i) partial[i % 16] = partial[i % 16] + c.q[i] * c.k[0][128 + i];
  const float score = shape.scale * num::tree16(partial), sink = 0.25f, m = num::max(score, sink);
  const float a = num::exp(score - m), b = num::exp(sink - m);
  const float l = 1.0f * a + 1.0f * b;
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], (c.v[0][128 + i] * a + 0.0f * b) * (1.0f / l));
}

TEST(Attention, AWindowOfOneIsTheValueItself) {
  Shape shape;
  shape.window = 1;
  const Case c = tail_case(shape, 70, 70);
  Rig rig;
  const Floats got = attend_all(rig, c);
  for (size_t r = 0; r < 70; ++r) {
    for (size_t h = 0; h < 4; ++h) {
      for (size_t i = 0; i < 64; ++i) EXPECT_EQ(got[(r * 4 + h) * 64 + i], c.v[0][(r * 2 + h / 2) * 64 + i]);
    }
  }
}

/// Long contexts with few rows are split over blocks where there are threads for it.
TEST(Attention, LongContextsInOneRowAndInSeveral) {
  Shape shape;
  shape.dk = shape.dv = 32;
  shape.type = shape.v_type = TensorType::f16;
  for (const int64_t kv_heads : {1, 2, 4}) {
    shape.kv_heads = kv_heads;
    for (const int32_t rows : {1, 2, 5}) {
      const Case c = tail_case(shape, 1500, rows);
      expect_close(c, same_everywhere([&](Rig& rig) { return attend_all(rig, c); }));
    }
  }
  shape.window = 700;
  const Case windowed = make_case(shape, {1500, 900}, {0, 1, 1, 0}, {1499, 899, 300, 700});
  expect_close(windowed, same_everywhere([&](Rig& rig) { return attend_all(rig, windowed); }));
}

TEST(Attention, ManyHeadsInSeveralWaves) {
  Shape shape;
  shape.dk = 8;
  shape.dv = 512;
  shape.heads = 40;
  shape.kv_heads = 1;
  const Case c = make_case(shape, {8000}, {0, 0}, {7999, 6000});
  const Floats one = [&] {
    Rig rig(Isa::automatic, 1);
    return attend_all(rig, c);
  }();
  Rig rig(Isa::automatic, 8);
  expect_same_bits(attend_all(rig, c), one, "8 threads");
}

TEST(Attention, SequencesAndRowsDoNotSeeEachOther) {
  for (const TensorType type : {TensorType::f32, TensorType::f16}) {
    Shape shape;
    shape.type = shape.v_type = type;
    shape.dk = shape.dv = 24;
    const Ints sequences = {2, 0, 0, 0, 1, 1, 3, 0, 2, 2, 2, 1},
               positions = {10, 63, 64, 65, 0, 1, 129, 191, 11, 12, 127, 70};
    const Case c = make_case(shape, {192, 71, 128, 130}, sequences, positions);
    const Floats together = same_everywhere([&](Rig& rig) { return attend_all(rig, c); });
    expect_close(c, together);
    Rig rig(Isa::automatic, 2);
    const Paged paged = store_all(rig, c);
    const size_t row = static_cast<size_t>(shape.dv * shape.heads);
    for (size_t r = 0; r < positions.size(); ++r) {
      const auto from = together.begin() + static_cast<int64_t>(r * row);
      expect_same_bits(attend(rig, c, paged, r, r + 1), Floats(from, from + static_cast<int64_t>(row)), "alone");
    }
    for (const size_t step : {size_t{3}, size_t{7}}) {
      for (size_t r = 0; r < positions.size(); r += step) {
        const size_t end = std::min(r + step, positions.size());
        expect_same_bits(attend(rig, c, paged, r, end),
                         Floats(together.begin() + static_cast<int64_t>(r * row),
                                together.begin() + static_cast<int64_t>(end * row)),
                         "in parts");
      }
    }
  }
}

/// docs/numbers.md written down plainly, with nothing but float; the case as it is stored.
Floats plain_attention(const Case& c, size_t row, int64_t head) {
  const Shape& s = c.shape;
  const size_t sequence = static_cast<size_t>(c.sequences[row]);
  const int64_t position = c.positions[row], kv_head = head / (s.heads / s.kv_heads);
  const float* q = c.q.data() + (static_cast<int64_t>(row) * s.heads + head) * s.dk;
  const size_t width = static_cast<size_t>(s.dv);
  float m = 0, l = 0;
  Floats o(width);
  for (int64_t start = 0; start <= position; start += 64) {
    const int64_t end = std::min(start + 64, position + 1);
    Floats score;
    for (int64_t j = start; j < end; ++j) {
      const float* k = c.k[sequence].data() + (j * s.kv_heads + kv_head) * s.dk;
      Floats partial(16, 0.0f);
      for (int64_t i = 0; i < s.dk; ++i) partial[static_cast<size_t>(i % 16)] += q[i] * k[i];
      score.push_back(s.scale * plain_tree16(partial));
    }
    const float mb = *std::max_element(score.begin(), score.end());
    Floats partial(16, 0.0f), ob(width, 0.0f);
    for (size_t j = 0; j < score.size(); ++j) {
      const float p = num::exp(score[j] - mb);
      partial[j % 16] = partial[j % 16] + p;
      const float* v = c.v[sequence].data() + ((start + static_cast<int64_t>(j)) * s.kv_heads + kv_head) * s.dv;
      for (size_t i = 0; i < width; ++i) ob[i] = ob[i] + p * v[i];
    }
    const float lb = plain_tree16(partial);
    if (start == 0) {
      m = mb, l = lb, o = ob;
      continue;
    }
    const float mn = m > mb ? m : mb, ca = num::exp(m - mn), cb = num::exp(mb - mn);
    m = mn;
    l = l * ca + lb * cb;
    for (size_t i = 0; i < width; ++i) o[i] = o[i] * ca + ob[i] * cb;
  }
  const float factor = 1.0f / l;
  for (float& x : o) x = x * factor;
  return o;
}

TEST(Attention, TakesTheOrderOfTheRule) {
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::q8_0}) {
    for (const int64_t dk : {int64_t{24}, int64_t{40}, int64_t{21}}) {
      Shape shape;
      shape.type = shape.v_type = type;
      const bool blocks = type == TensorType::q8_0;
      shape.dk = blocks ? (dk / 8) * 32 : dk;
      shape.dv = blocks ? shape.dk + 32 : dk + 3;
      const Case c = tail_case(shape, 300, 2);
      Rig rig;
      const Floats got = attend_all(rig, c);
      for (size_t r = 0; r < 2; ++r) {
        for (int64_t h = 0; h < shape.heads; ++h) {
          const auto from = got.begin() + (static_cast<int64_t>(r) * shape.heads + h) * shape.dv;
          expect_same_bits(Floats(from, from + shape.dv), plain_attention(as_stored(c), r, h), "rule");
        }
      }
    }
  }
}

TEST(Attention, OddInputsDoNotCrash) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::q8_0}) {
    Shape shape;
    shape.type = shape.v_type = type;
    Case c = tail_case(shape, 130, 10);
    c.q[5] = nan;
    c.q[300] = inf;
    c.k[0][64 * 2 * 20 + 3] = nan;
    c.k[0][64 * 2 * 64 + 3] = -inf;
    c.v[0][64 * 2 * 129] = nan;
    c.v[0][7] = inf;
    const Floats got = same_everywhere([&](Rig& rig) { return attend_all(rig, c); });
    EXPECT_TRUE(std::isnan(got[(9 * 4) * 64]));  // the last row sees the NaN value
    EXPECT_TRUE(std::isfinite(got[(8 * 4 + 3) * 64 + 40]));
  }
}

TEST(Attention, StoreKvPutsRowsAtTheirPlaces) {
  Shape shape;
  shape.dk = 3;
  shape.dv = 2;
  shape.heads = shape.kv_heads = 2;
  shape.type = TensorType::f16;
  const Case c = make_case(shape, {66, 1}, {0}, {65});
  Rig rig;
  const Paged paged = store_all(rig, c);  // pages: 0 = sequence 1, 1 and 2 = sequence 0
  const int64_t pages = paged.layer.k.shape[3];
  ASSERT_EQ(pages, 3);
  std::vector<uint16_t> k(static_cast<size_t>(3 * 64 * 2 * pages));
  rig->download(paged.layer.k, k.data());
  const Floats v = rig.read(paged.layer.v);
  const auto place = [](int64_t page, int64_t head, int64_t slot) {
    return static_cast<size_t>((page * 2 + head) * 64 + slot);
  };
  for (size_t head = 0; head < 2; ++head) {
    const auto h = static_cast<int64_t>(head);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(k[place(0, h, 0) * 3 + i], f32_to_f16(c.k[1][head * 3 + i]));
      EXPECT_EQ(k[place(1, h, 63) * 3 + i], f32_to_f16(c.k[0][(63 * 2 + head) * 3 + i]));
      EXPECT_EQ(k[place(2, h, 1) * 3 + i], f32_to_f16(c.k[0][(65 * 2 + head) * 3 + i]));
      EXPECT_EQ(k[place(2, h, 2) * 3 + i], 0) << "nothing past the last position";
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(v[place(2, h, 1) * 2 + i], c.v[0][(65 * 2 + head) * 2 + i]);
  }
}

TEST(Attention, PlacesOutsideTheTableAreErrors) {
  const Case c = tail_case(Shape{}, 100, 1);
  Rig rig;
  const Paged paged = store_all(rig, c);
  const Tensor q = rig.floats({64, 4, 1, 1}), out = rig.floats({64, 4, 1, 1});
  const Tensor k = rig.floats({64, 2, 1, 1});
  const auto expect_error = [&](const Tensor& table, int32_t sequence, int32_t position) {
    const BatchRows rows = batch_of(rig, table, {sequence}, {position});
    EXPECT_THROW(rig->attention(q, rows, paged.layer, {}, out), Error);
    EXPECT_THROW(rig->store_kv(k, k, rows, paged.layer), Error);
  };
  expect_error(paged.table, 0, 128);
  expect_error(paged.table, 0, -1);
  expect_error(paged.table, 1, 0);
  expect_error(paged.table, -1, 0);
  expect_error(rig.ints({2, 1, 1, 1}, {0, 2}), 0, 64);
  expect_error(rig.ints({2, 1, 1, 1}, {0, -1}), 0, 64);
}

TEST(Attention, WrongShapesAreErrors) {
  const Case c = tail_case(Shape{}, 10, 1);
  Rig rig;
  const Paged paged = store_all(rig, c);
  const BatchRows rows = batch_of(rig, paged.table, {0}, {9});
  const Tensor good = rig.floats({64, 4, 1, 1});
  EXPECT_NO_THROW(rig->attention(good, rows, paged.layer, {}, good));
  EXPECT_THROW(rig->attention(rig.floats({64, 3, 1, 1}), rows, paged.layer, {}, rig.floats({64, 3, 1, 1})), Error);
  EXPECT_THROW(rig->attention(rig.floats({60, 4, 1, 1}), rows, paged.layer, {}, good), Error);
  EXPECT_THROW(rig->attention(rig.floats({64, 4, 2, 1}), rows, paged.layer, {}, good), Error);
  KvLayer wrong = paged.layer;
  wrong.k = rig.make(TensorType::q4_0, {64, 64, 2, 1});
  EXPECT_THROW(rig->attention(good, rows, wrong, {}, good), Error);
  wrong.k = rig.make(TensorType::bf16, {64, 64, 2, 1});
  EXPECT_THROW(rig->attention(good, rows, wrong, {}, good), Error);
  wrong.k = rig.floats({64, 32, 2, 1});
  EXPECT_THROW(rig->attention(good, rows, wrong, {}, good), Error);
  AttentionParams negative;
  negative.window = -1;
  EXPECT_THROW(rig->attention(good, rows, paged.layer, negative, good), Error);
}

/// Values that are the first elements of the keys, stored once, against the same values stored by themselves.
TEST(LatentAttention, ValuesInTheKeysGiveTheBitsOfValuesApart) {
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::q8_0}) {
    const int64_t dk = 96, dv = 64, heads = 6, length = 150, rows = 7;
    const Floats keys = noise(static_cast<size_t>(dk * length), 1);
    Floats values;
    for (int64_t p = 0; p < length; ++p) values.insert(values.end(), keys.begin() + p * dk, keys.begin() + p * dk + dv);
    const Floats q = noise(static_cast<size_t>(dk * heads * rows), 2, 2.0f);
    const auto run = [&](Rig& rig, bool latent) {
      const Tensor table = rig.ints({3, 1, 1, 1}, {2, 0, 1});
      KvLayer layer{rig.make(type, {dk, kPagePositions, 1, 3}), {}};
      layer.v = latent ? layer.k.slice_columns(0, dv) : rig.make(type, {dv, kPagePositions, 1, 3});
      Ints positions(static_cast<size_t>(length));
      std::iota(positions.begin(), positions.end(), 0);
      rig->store_kv(rig.floats({dk, 1, length, 1}, keys), latent ? Tensor{} : rig.floats({dv, 1, length, 1}, values),
                    batch_of(rig, table, Ints(positions.size(), 0), positions), layer);
      const Ints last(positions.end() - rows, positions.end());
      const Tensor out = rig.floats({dv, heads, rows, 1});
      rig->attention(rig.floats({dk, heads, rows, 1}, q), batch_of(rig, table, Ints(last.size(), 0), last), layer,
                     {.scale = 0.1f}, out);
      return rig.read(out);
    };
    Rig rig;
    expect_same_bits(same_everywhere([&](Rig& r) { return run(r, true); }), run(rig, false),
                     std::string(type_name(type)));
  }
}

}  // namespace
}  // namespace moetier
