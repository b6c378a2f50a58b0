// The bits themselves. Other tests hold the units of one machine against each other; here the portable unit's results
// on x86-64 are written down as hashes, so that machines with no unit in common are held against each other, too. A
// hash changes only when docs/numbers.md does.
#include <fmt/core.h>

#include <numeric>

#include "compute/kernel_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

/// FNV-1a over the values' bits, with all NaNs alike.
uint64_t hash(const Floats& values) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const uint32_t word : bits(values)) {
    for (int shift = 0; shift < 32; shift += 8) h = (h ^ ((word >> shift) & 255u)) * 0x100000001b3u;
  }
  return h;
}

/// Expects the hash from every instruction set that this machine has.
void expect_golden(const char* name, uint64_t golden, const std::function<Floats(Rig&)>& work) {
  for (const Isa isa : available_isas()) {
    Rig rig(isa, 1);
    const uint64_t got = hash(work(rig));
    EXPECT_EQ(got, golden) << fmt::format("{} on {}: 0x{:016x}", name, isa_name(isa), got);
  }
}

void append(Floats& to, const Floats& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// --- products of every type ---

struct TypeHash {
  TensorType type;
  uint64_t golden;
};

constexpr TypeHash kProducts[] = {
    {TensorType::f32, 0x5755b30cc9e67734},     {TensorType::f16, 0xd36d46a04f2a9160},
    {TensorType::bf16, 0x249027a173143e01},    {TensorType::q8_0, 0x7ae2c755f0e688b0},
    {TensorType::q4_0, 0xacc3068269281967},    {TensorType::q4_1, 0x166cd2e43e900aa5},
    {TensorType::q5_0, 0xd839abaff19a6336},    {TensorType::q5_1, 0xe8bcc1ca03c8e79d},
    {TensorType::q4_k, 0x6583aeca869ef8e7},    {TensorType::q5_k, 0xaf3d316b95f6ab4c},
    {TensorType::q6_k, 0xe6cc4b1724aa4f6a},    {TensorType::iq4_nl, 0xaee467d1d7f9c8f8},
    {TensorType::mxfp4, 0x97a26b46dfac988f},   {TensorType::q2_k, 0x82376da181ca535a},
    {TensorType::q3_k, 0xa0bcdc8ff2426f4c},    {TensorType::iq2_xxs, 0x0e5d247c5a17b3eb},
    {TensorType::iq2_xs, 0xb99c1014ffee391a},  {TensorType::iq2_s, 0x0b976c6e52fcb85e},
    {TensorType::iq3_xxs, 0x1c0b58f8aae3e5ec}, {TensorType::iq3_s, 0xec7f6d08e7f39895},
    {TensorType::iq1_s, 0x3c07d9487935cd90},   {TensorType::iq1_m, 0x6a07ea225c196a60},
    {TensorType::iq4_xs, 0x3a3d82a737e918f7},  {TensorType::tq1_0, 0xf3a3e6afddd97424},
    {TensorType::tq2_0, 0x210382be5a296460},   {TensorType::nvfp4, 0x3cb6de59c13792a3},
};

/// Ordinary and odd weights times ordinary and odd activations, encoded and multiplied, 1 and 7 rows at a time.
Floats products(Rig& rig, TensorType type) {
  const int64_t columns = type_info(type).block_length == 1 ? 1001 : 1280, rows = 21;
  Floats all;
  unsigned seed = 1;
  for (const Fill fill : {Fill::ordinary, Fill::largest, Fill::scales, Fill::broken}) {
    for (const int variant : {0, 2, 3, 5}) {
      const Tensor w = weight_tensor(rig, type, columns, rows, make_weights(type, columns, rows, fill, ++seed));
      for (const int64_t n : {1, 7}) {
        const Floats x = make_activations(static_cast<size_t>(columns * n), seed, variant);
        const MatmulTerm term{w, rig.floats({rows, n, 1, 1})};
        rig->matmul(rig.floats({columns, n, 1, 1}, x), {&term, 1});
        append(all, rig.read(term.out));
      }
    }
  }
  return all;
}

TEST(GoldenBits, Products) {
  for (const TypeHash& p : kProducts) {
    const std::string name(type_name(p.type));
    expect_golden(name.c_str(), p.golden, [&](Rig& rig) { return products(rig, p.type); });
  }
}

TEST(GoldenBits, KnowEveryType) {
  for (const TensorType type : kernel_types()) {
    const auto same = [type](const TypeHash& p) { return p.type == type; };
    EXPECT_TRUE(std::any_of(std::begin(kProducts), std::end(kProducts), same)) << type_name(type);
  }
}

// --- everything else ---

TEST(GoldenBits, Norms) {
  expect_golden("rms_norm", 0xa1835c3231226fb2, [](Rig& rig) {
    Floats all;
    for (const int64_t columns : {1, 15, 64, 1003}) {
      const Tensor x = rig.floats({columns, 3, 1, 1}, noise(static_cast<size_t>(3 * columns), 1)),
                   out = rig.floats(x.shape);
      rig->rms_norm(x, rig.floats({columns, 1, 1, 1}, noise(static_cast<size_t>(columns), 2)), 1e-6f, out);
      append(all, rig.read(out));
      rig->rms_norm(x, {}, 1e-5f, out);
      append(all, rig.read(out));
    }
    return all;
  });
}

TEST(GoldenBits, ActivationFunctions) {
  expect_golden("glu", 0x85c8f4c47baa1678, [](Rig& rig) {
    Floats all;
    for (const int variant : {0, 2, 3, 5}) {
      const std::array<int64_t, 4> shape{1003, 2, 1, 1};
      const Tensor gate = rig.floats(shape, make_activations(2006, 3, variant));
      const Tensor up = rig.floats(shape, noise(2006, 4, 3.0f)), out = rig.floats(shape);
      for (const Activation activation : {Activation::silu, Activation::gelu}) {
        rig->glu(activation, gate, up, out);
        append(all, rig.read(out));
      }
      rig->sigmoid_gate(rig.floats({1, 2, 1, 1}, {0.7f, -3.1f}), up, out);
      append(all, rig.read(out));
    }
    return all;
  });
}

TEST(GoldenBits, Rotation) {
  expect_golden("rope", 0xe8279a29aecb7059, [](Rig& rig) {
    const Tensor positions = rig.ints({5, 1, 1, 1}, {0, 1, 77, 4095, 131071});
    Floats all;
    for (const double ext_factor : {0.0, 1.0}) {
      RopeParams params;
      params.dims = 92;
      params.base = 1e6;
      params.freq_scale = ext_factor == 0 ? 1.0 : 0.25;
      params.ext_factor = ext_factor;
      params.original_context = 4096;
      params.magnitude = 1.1;
      const Tensor table = rig.floats({92, 5, 1, 1});
      rig->rope_table(params, positions, table);
      append(all, rig.read(table));
      for (const RopePairs pairs : {RopePairs::neighbours, RopePairs::halves}) {
        const Tensor x = rig.floats({96, 3, 5, 1}, noise(96 * 3 * 5, 5));
        rig->rope(x, table, pairs);
        append(all, rig.read(x));
      }
    }
    return all;
  });
}

/// One sequence with its keys and values stored as `type`, some rows of queries near its end.
Floats attention(Rig& rig, TensorType type, int64_t width, int64_t window) {
  const int64_t heads = 4, kv_heads = 2, length = 301, rows = 9, pages = 5;
  const auto batch = [&](int64_t first, int64_t n) {
    Ints positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    BatchRows b;
    b.tokens = b.sequences = rig.ints({n, 1, 1, 1}, Ints(positions.size()));
    b.positions = rig.ints({n, 1, 1, 1}, positions);
    b.page_table = rig.ints({pages, 1, 1, 1}, {2, 0, 4, 1, 3});
    return b;
  };
  const auto stored = static_cast<size_t>(width * kv_heads * length);
  const KvLayer kv{rig.make(type, {width, kPagePositions, kv_heads, pages}),
                   rig.make(type, {width, kPagePositions, kv_heads, pages})};
  rig->store_kv(rig.floats({width, kv_heads, length, 1}, noise(stored, 6)),
                rig.floats({width, kv_heads, length, 1}, noise(stored, 7)), batch(0, length), kv);
  const Tensor q = rig.floats({width, heads, rows, 1}, noise(static_cast<size_t>(width * heads * rows), 8, 2.0f));
  const Tensor out = rig.floats(q.shape);
  rig->attention(q, batch(length - rows, rows), kv, {.scale = 0.3f, .window = window}, out);
  return rig.read(out);
}

TEST(GoldenBits, Attention) {
  expect_golden("attention", 0x6bec261fc1466ad9, [](Rig& rig) {
    Floats all;
    for (const TensorType type : {TensorType::f32, TensorType::f16}) {
      for (const int64_t width : {8, 40, 128}) {
        for (const int64_t window : {0, 70}) append(all, attention(rig, type, width, window));
      }
    }
    return all;
  });
}

TEST(GoldenBits, Routing) {
  expect_golden("route", 0x9c832fde98a76952, [](Rig& rig) {
    constexpr int64_t kExperts = 60, kRows = 4;
    constexpr int kTopK = 6;
    const Tensor logits = rig.floats({kExperts, kRows, 1, 1}, noise(kExperts * kRows, 9, 2.0f));
    const Tensor bias = rig.floats({kExperts, 1, 1, 1}, noise(kExperts, 10, 0.1f));
    const Tensor ids = rig.ints({kTopK, kRows, 1, 1}, Ints(kTopK * kRows)), weights = rig.floats(ids.shape);
    Floats all;
    for (const Gating gating : {Gating::softmax, Gating::sigmoid, Gating::softmax_of_picks}) {
      for (const int groups : {1, 4}) {
        rig->route(logits, gating == Gating::sigmoid ? bias : Tensor{},
                   {.top_k = kTopK,
                    .gating = gating,
                    .normalize = groups == 4,
                    .scale = 2.5f,
                    .groups = groups,
                    .groups_used = (groups + 1) / 2},
                   ids, weights);
        append(all, rig.read(weights));
        for (const int32_t id : rig.read_ints(ids)) all.push_back(static_cast<float>(id));
      }
    }
    return all;
  });
}

/// A layer of eight experts, every row picks three of them.
Floats experts(Rig& rig, const ExpertFfn& ffn) {
  constexpr int32_t kExperts = 8;
  constexpr int64_t kTopK = 3, kRows = 6;
  std::vector<Bytes> gate, up, down;
  std::vector<std::vector<PickPlace>> places(kExperts);
  Ints ids;
  for (unsigned e = 0; e < kExperts; ++e) {
    gate.push_back(make_weights(ffn.gate_type, ffn.columns, ffn.width, Fill::ordinary, 10 * e));
    up.push_back(make_weights(ffn.up_type, ffn.columns, ffn.width, Fill::ordinary, 10 * e + 1));
    down.push_back(make_weights(ffn.down_type, ffn.width, ffn.columns, Fill::ordinary, 10 * e + 2));
  }
  for (int32_t slot = 0; slot < kTopK * kRows; ++slot) {
    ids.push_back((slot * 5 + slot / 8) % kExperts);
    places[static_cast<size_t>(ids.back())].push_back({slot / static_cast<int32_t>(kTopK), slot});
  }
  std::vector<ExpertGroup> groups;
  for (int32_t e = 0; e < kExperts; ++e) {
    const auto i = static_cast<size_t>(e);
    if (!places[i].empty()) groups.push_back({e, {gate[i].data(), up[i].data(), down[i].data()}, places[i]});
  }
  const Tensor x = rig.floats({ffn.columns, kRows, 1, 1}, noise(static_cast<size_t>(ffn.columns * kRows), 11));
  const Tensor out = rig.floats(x.shape);
  rig->experts_begin(ffn, x, rig.floats({kTopK, kRows, 1, 1}, noise(kTopK * kRows, 12)));
  rig->experts_run(groups);
  rig->experts_finish(rig.ints({kTopK, kRows, 1, 1}, ids), out);
  return rig.read(out);
}

TEST(GoldenBits, Experts) {
  expect_golden("experts", 0xb807db4c5db44eb4, [](Rig& rig) {
    Floats all = experts(rig, {.columns = 256,
                               .width = 96,
                               .gate_type = TensorType::q4_k,
                               .up_type = TensorType::q4_k,
                               .down_type = TensorType::q8_0});
    append(all, experts(rig, {.columns = 64,
                              .width = 160,
                              .gate_type = TensorType::mxfp4,
                              .up_type = TensorType::q5_1,
                              .down_type = TensorType::q4_0,
                              .activation = Activation::gelu}));
    append(all, experts(rig, {.columns = 50,
                              .width = 33,
                              .gate_type = TensorType::f16,
                              .up_type = TensorType::bf16,
                              .down_type = TensorType::f32}));
    return all;
  });
}

TEST(GoldenBits, HeadProducts) {
  expect_golden("matmul_heads", 0x65c86f9192c84edd, [](Rig& rig) {
    Floats all;
    for (const TensorType type : {TensorType::f32, TensorType::q8_0, TensorType::q5_0}) {
      const Tensor w = weight_tensor(rig, type, 96, 40, make_weights(type, 96, 40, Fill::ordinary, 17));
      const Tensor out = rig.floats({10, 4, 3, 1});
      rig->matmul_heads(rig.floats({96, 4, 3, 1}, noise(96 * 12, 18)), w.reshaped({96, 10, 4, 1}), 1.0f, out);
      append(all, rig.read(out));
    }
    return all;
  });
}

TEST(GoldenBits, MoreActivationFunctions) {
  expect_golden("glu", 0xa83d0ae19d162257, [](Rig& rig) {
    Floats all;
    for (const int variant : {0, 2, 3, 5}) {
      const std::array<int64_t, 4> shape{1003, 2, 1, 1};
      const Tensor gate = rig.floats(shape, make_activations(2006, 3, variant));
      const Tensor up = rig.floats(shape, noise(2006, 4, 3.0f)), out = rig.floats(shape);
      for (const Activation activation : {Activation::sigmoid, Activation::identity, Activation::relu}) {
        rig->glu(activation, gate, up, out);
        append(all, rig.read(out));
      }
    }
    return all;
  });
}

TEST(GoldenBits, Temperature) {
  expect_golden("temperature", 0xfcc06764a21ea190, [](Rig& rig) {
    const Tensor x = rig.floats({37, 2, 4, 1}, noise(37 * 8, 19));
    rig->temperature({.scale = 0.1, .length = 50, .offset = 1}, rig.ints({4, 1, 1, 1}, {0, 49, 777, 131071}), x);
    return rig.read(x);
  });
}

/// Two sequences of four rows, one of which goes on from slot 2; both leave what they remember.
BatchRows recurrent_rows(Rig& rig) {
  BatchRows rows;
  rows.tokens = rows.positions = rig.ints({8, 1, 1, 1}, {0, 0, 1, 2, 1, 2, 3, 3});
  rows.sequences = rig.ints({8, 1, 1, 1}, {0, 1, 0, 0, 1, 1, 1, 0});
  rows.page_table = rig.ints({1, 2, 1, 1}, {0, 1});
  rows.states_from = rig.ints({8, 1, 1, 1}, {2, -1, 0, 0, 1, 1, 1, 0});
  rows.states_to = rig.ints({8, 1, 1, 1}, {0, 1, 0, 0, 1, 1, 1, 0});
  return rows;
}

TEST(GoldenBits, CausalConvolution) {
  expect_golden("causal_conv", 0x933c0c9317477216, [](Rig& rig) {
    Floats all;
    for (const bool silu : {false, true}) {
      const Tensor memory = rig.floats({201, 3, 3, 1}, noise(201 * 9, 21)), out = rig.floats({201, 8, 1, 1});
      ConvParams params{.weight = rig.floats({201, 4, 1, 1}, noise(201 * 4, 22)), .silu = silu};
      if (silu) params.bias = rig.floats({201, 1, 1, 1}, noise(201, 23));
      rig->causal_conv(rig.floats({201, 8, 1, 1}, noise(201 * 8, 24)), params, recurrent_rows(rig), memory, out);
      append(all, rig.read(out));
      append(all, rig.read(memory));
    }
    return all;
  });
}

TEST(GoldenBits, DeltaRule) {
  expect_golden("delta_rule", 0x4569335f26d7bfe0, [](Rig& rig) {
    Floats all;
    for (const bool tiled : {false, true}) {
      const Tensor memory = rig.floats({48, 48, 4, 3}, noise(48 * 48 * 12, 31)), out = rig.floats({48, 4, 8, 1});
      rig->delta_rule({.query = rig.floats({48, 2, 8, 1}, noise(48 * 16, 32, 0.2f)),
                       .key = rig.floats({48, 2, 8, 1}, noise(48 * 16, 33, 0.2f)),
                       .value = rig.floats({48, 4, 8, 1}, noise(48 * 32, 34)),
                       .decay = rig.floats({4, 8, 1, 1}, noise(32, 35, 9.0f)),
                       .step = rig.floats({4, 8, 1, 1}, noise(32, 36, 3.0f)),
                       .bias = rig.floats({4, 1, 1, 1}, {0.5f, -1.0f, 12.0f, 0.0f}),
                       .factor = rig.floats({4, 1, 1, 1}, {-0.3f, -1.0f, -7.0f, -0.01f}),
                       .tiled = tiled},
                      recurrent_rows(rig), memory, out);
      append(all, rig.read(out));
      append(all, rig.read(memory));
    }
    return all;
  });
}

TEST(GoldenBits, DeltaRuleWithADecayForEachElement) {
  expect_golden("delta_rule", 0x7c94b92f68d8e424, [](Rig& rig) {
    const Tensor memory = rig.floats({48, 48, 2, 3}, noise(48 * 48 * 6, 51)), out = rig.floats({48, 2, 8, 1});
    rig->delta_rule({.query = rig.floats({48, 2, 8, 1}, noise(48 * 16, 52, 0.2f)),
                     .key = rig.floats({48, 2, 8, 1}, noise(48 * 16, 53, 0.2f)),
                     .value = rig.floats({48, 2, 8, 1}, noise(48 * 16, 54)),
                     .decay = rig.floats({48, 2, 8, 1}, noise(48 * 16, 55, 3.0f)),
                     .step = rig.floats({2, 8, 1, 1}, noise(16, 56, 3.0f)),
                     .bias = rig.floats({48, 2, 1, 1}, noise(96, 57)),
                     .factor = rig.floats({2, 1, 1, 1}, {0.7f, 3.0f}),
                     .least_decay = -5.0f},
                    recurrent_rows(rig), memory, out);
    Floats all = rig.read(out);
    append(all, rig.read(memory));
    return all;
  });
}

TEST(GoldenBits, Scan) {
  expect_golden("scan", 0xd0e595952fbfc8b9, [](Rig& rig) {
    const Tensor memory = rig.floats({32, 37, 4, 3}, noise(32 * 37 * 12, 41)), out = rig.floats({37, 4, 8, 1});
    rig->scan({.x = rig.floats({37, 4, 8, 1}, noise(37 * 32, 42)),
               .b = rig.floats({32, 2, 8, 1}, noise(32 * 16, 43)),
               .c = rig.floats({32, 2, 8, 1}, noise(32 * 16, 44)),
               .step = rig.floats({4, 8, 1, 1}, noise(32, 45, 3.0f)),
               .bias = rig.floats({4, 1, 1, 1}, {0.5f, -1.0f, 12.0f, 0.0f}),
               .factor = rig.floats({4, 1, 1, 1}, {-0.3f, -1.0f, -7.0f, -0.01f}),
               .skip = rig.floats({4, 1, 1, 1}, {1.0f, 0.5f, 0.0f, -2.0f})},
              recurrent_rows(rig), memory, out);
    Floats all = rig.read(out);
    append(all, rig.read(memory));
    return all;
  });
}

}  // namespace
}  // namespace moetier
