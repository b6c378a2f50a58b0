#include "compute/cpu/experts.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/kernel_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

/// A layer of experts with random weights, and rows that have picked some of them.
struct Layer {
  ExpertFfn ffn;
  int64_t n_experts, top_k, rows;
  std::vector<Bytes> gate, up, down;  ///< per expert; fused: gate holds both
  Floats x, weights;
  Floats gate_bias, up_bias, down_bias;  ///< empty = none
  Ints ids;
  bool scaled = false;  ///< products have factors

  /// Of projection 0 (gate), 1 (up) or 2 (down).
  float scale(int32_t expert, int projection) const {
    return scaled ? 0.75f + 0.1f * static_cast<float>(expert) + 0.3f * static_cast<float>(projection) : 1.0f;
  }

  Layer(ExpertFfn f, int64_t experts, int64_t k, int64_t n, unsigned seed, bool with_factors = false,
        bool biased = false)
      : ffn(f), n_experts(experts), top_k(k), rows(n), scaled(with_factors) {
    for (unsigned e = 0; e < experts; ++e) {
      gate.push_back(make_weights(ffn.gate_type, ffn.columns, ffn.fused ? 2 * ffn.width : ffn.width, Fill::ordinary,
                                  seed + 3 * e));
      up.push_back(ffn.fused ? Bytes{}
                             : make_weights(ffn.up_type, ffn.columns, ffn.width, Fill::ordinary, seed + 3 * e + 1));
      down.push_back(make_weights(ffn.down_type, ffn.width, ffn.columns, Fill::ordinary, seed + 3 * e + 2));
    }
    x = noise(static_cast<size_t>(ffn.columns * n), seed + 1000);
    weights = noise(static_cast<size_t>(k * n), seed + 1001);
    if (biased) {
      gate_bias = noise(static_cast<size_t>(ffn.width * experts), seed + 1002, 3.0f);
      up_bias = noise(static_cast<size_t>(ffn.width * experts), seed + 1003, 3.0f);
      down_bias = noise(static_cast<size_t>(ffn.columns * experts), seed + 1004);
      down_bias[0] = 0x1p-110f;  // flushed
    }
    std::mt19937 random(seed);
    for (int64_t r = 0; r < n; ++r) {
      Ints all(static_cast<size_t>(experts));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + k);
    }
  }

  /// The groups in the order of `experts`; `places` keeps the picks.
  std::vector<ExpertGroup> groups(const Ints& experts, std::map<int32_t, std::vector<PickPlace>>& places) const {
    places.clear();
    for (int64_t slot = 0; slot < rows * top_k; ++slot) {
      places[ids[static_cast<size_t>(slot)]].push_back(
          {static_cast<int32_t>(slot / top_k), static_cast<int32_t>(slot)});
    }
    std::vector<ExpertGroup> out;
    for (const int32_t e : experts) {
      const auto i = static_cast<size_t>(e);
      if (!places.contains(e)) continue;
      out.push_back({e, {gate[i].data(), ffn.fused || !ffn.gated ? nullptr : up[i].data(), down[i].data()}, places[e]});
      out.back().weights.gate_scale = scale(e, 0);
      out.back().weights.up_scale = scale(e, 1);
      out.back().weights.down_scale = scale(e, 2);
    }
    return out;
  }

  /// The description with the biases where `rig` can read them.
  ExpertFfn on(Rig& rig) const {
    ExpertFfn f = ffn;
    if (gate_bias.empty()) return f;
    f.gate_bias = rig.floats({ffn.width, n_experts, 1, 1}, gate_bias);
    f.up_bias = rig.floats({ffn.width, n_experts, 1, 1}, up_bias);
    f.down_bias = rig.floats({ffn.columns, n_experts, 1, 1}, down_bias);
    return f;
  }

  Ints ascending() const {
    Ints out(static_cast<size_t>(n_experts));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }

  /// One pass, with the groups handed over `per_call` at a time.
  Floats run(Rig& rig, const Ints& order, size_t per_call) const {
    const Tensor input = rig.floats({ffn.columns, rows, 1, 1}, x);
    const Tensor factors = rig.floats({top_k, rows, 1, 1}, weights);
    const Tensor out = rig.floats({ffn.columns, rows, 1, 1});
    std::map<int32_t, std::vector<PickPlace>> places;
    const std::vector<ExpertGroup> all = groups(order, places);
    rig->experts_begin(on(rig), input, factors);
    for (size_t i = 0; i < all.size(); i += per_call) {
      rig->experts_run({all.data() + i, std::min(per_call, all.size() - i)});
    }
    rig->experts_finish(rig.ints({top_k, rows, 1, 1}, ids), out);
    return rig.read(out);
  }
};

/// Row r of a matrix times an encoded row, by the portable unit.
float dot_of(TensorType type, const std::byte* data, int64_t columns, int64_t rows, int64_t r, const Bytes& x) {
  float result = 0;
  float* out = &result;
  const std::byte* input = x.data();
  portable_dots().of(type)({data, row_bytes(type, columns), columns, rows}, r, r + 1, &input, &out, 1);
  return result;
}

float add_bias(const Floats& bias, int64_t at, float dot) {
  return bias.empty() ? dot : dot + num::flush(bias[static_cast<size_t>(at)]);
}

/// h of one gate and up.
float activate(Activation activation, float limit, float gate, float up) {
  if (limit > 0) {
    gate = limit < gate ? limit : gate;
    up = -limit > up ? -limit : limit < up ? limit : up;
  }
  if (activation == Activation::swiglu_oai) {
    const float g = 7.0f < gate ? 7.0f : gate;
    const float u = -7.0f > up ? -7.0f : 7.0f < up ? 7.0f : up;
    return num::flush(num::flush(g * num::sigmoid(1.702f * g)) * (u + 1.0f));
  }
  const float activated = activation == Activation::relu   ? num::relu(gate)
                          : activation == Activation::silu ? num::silu(gate)
                                                           : num::gelu(gate);
  return num::flush(num::flush(activated) * up);
}

/// docs/numbers.md, row by row and pick by pick.
Floats by_rule(const Layer& layer) {
  const ExpertFfn& f = layer.ffn;
  Floats out;
  for (int64_t row = 0; row < layer.rows; ++row) {
    const float* x = layer.x.data() + row * f.columns;
    const TensorType up_type = f.fused ? f.gate_type : f.up_type;
    std::map<int32_t, float> picks;  // ascending expert id
    for (int64_t k = 0; k < layer.top_k; ++k) {
      const auto slot = static_cast<size_t>(row * layer.top_k + k);
      picks[layer.ids[slot]] = layer.weights[slot];
    }
    Floats sum(static_cast<size_t>(f.columns), 0.0f);
    for (auto [expert, weight] : picks) {
      Floats input(x, x + f.columns);
      if (f.weigh_input) {
        for (float& value : input) value = num::flush(weight * value);
        weight = 1.0f;
      }
      const Bytes gate_x = encode_row(activation_kind(f.gate_type), input.data(), f.columns);
      const Bytes up_x = encode_row(activation_kind(up_type), input.data(), f.columns);
      const auto e = static_cast<size_t>(expert);
      const std::byte* up =
          f.fused ? layer.gate[e].data() + static_cast<size_t>(f.width) * row_bytes(f.gate_type, f.columns)
                  : layer.up[e].data();
      Floats h;
      for (int64_t r = 0; r < f.width; ++r) {
        const float gate =
            dot_of(f.gate_type, layer.gate[e].data(), f.columns, f.width, r, gate_x) * layer.scale(expert, 0);
        const float up_product = dot_of(up_type, up, f.columns, f.width, r, up_x) * layer.scale(expert, 1);
        const float biased = add_bias(layer.gate_bias, expert * f.width + r, gate);
        h.push_back(activate(f.activation, f.limit, biased,
                             f.gated ? add_bias(layer.up_bias, expert * f.width + r, up_product) : biased));
      }
      const Bytes down_x = encode_row(activation_kind(f.down_type), h.data(), f.width);
      for (int64_t r = 0; r < f.columns; ++r) {
        const float product =
            dot_of(f.down_type, layer.down[e].data(), f.width, f.columns, r, down_x) * layer.scale(expert, 2);
        const float y = add_bias(layer.down_bias, expert * f.columns + r, product);
        float& s = sum[static_cast<size_t>(r)];
        s = s + num::flush(weight * y);
      }
    }
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

struct Case {
  const char* name;
  ExpertFfn ffn;
  bool scaled = false, biased = false;
};

ExpertFfn without_gate(ExpertFfn ffn) {
  ffn.gated = false;
  return ffn;
}

ExpertFfn weighing_input(ExpertFfn ffn) {
  ffn.weigh_input = true;
  return ffn;
}

ExpertFfn limited(ExpertFfn ffn) {
  ffn.limit = 0.4f;
  return ffn;
}

const std::vector<Case>& cases() {
  using T = TensorType;
  static const std::vector<Case> all{
      {"q8_0", {64, 96, T::q8_0, T::q8_0, T::q8_0, false, Activation::silu}},
      {"q4_0_gelu", {96, 64, T::q4_0, T::q4_0, T::q4_0, false, Activation::gelu}},
      {"q4_k_m", {256, 256, T::q4_k, T::q4_k, T::q6_k, false, Activation::silu}},
      {"q2_k", {256, 512, T::q2_k, T::q2_k, T::q3_k, false, Activation::silu}},
      {"iq2_m", {512, 256, T::iq2_s, T::iq3_s, T::iq3_xxs, false, Activation::silu}},
      {"unlike", {256, 256, T::iq1_m, T::iq2_xxs, T::iq4_xs, false, Activation::silu}},
      {"nvfp4", {128, 192, T::nvfp4, T::nvfp4, T::nvfp4, false, Activation::silu}, true},
      {"scaled", {256, 96, T::tq2_0, T::q8_0, T::f16, false, Activation::gelu}, true},
      {"mixed_kinds", {256, 160, T::q4_k, T::q8_0, T::q5_1, false, Activation::silu}},
      {"mxfp4_fused", {64, 32, T::mxfp4, T::f32, T::mxfp4, true, Activation::silu}},
      {"f32_odd", {20, 11, T::f32, T::f32, T::f32, false, Activation::silu}},
      {"f16_into_iq4_nl", {40, 64, T::f16, T::bf16, T::iq4_nl, false, Activation::gelu}},
      {"mxfp4_oai_biased", {64, 96, T::mxfp4, T::mxfp4, T::mxfp4, false, Activation::swiglu_oai}, true, true},
      {"f32_odd_oai_biased", {20, 11, T::f32, T::f32, T::f32, false, Activation::swiglu_oai}, false, true},
      {"fused_biased", {32, 96, T::q8_0, T::q8_0, T::q8_0, true, Activation::silu}, false, true},
      {"relu", {64, 96, T::q8_0, T::q5_0, T::q8_0, false, Activation::relu}},
      {"weighed_input", weighing_input({64, 96, T::q8_0, T::q5_0, T::q8_0, false, Activation::silu})},
      {"weighed_input_f32", weighing_input({20, 11, T::f32, T::f16, T::f32, false, Activation::silu}), true, true},
      {"relu_alone", without_gate({64, 96, T::q8_0, T::q8_0, T::q8_0, false, Activation::relu})},
      {"relu_alone_odd", without_gate({20, 11, T::f32, T::f32, T::f16, false, Activation::relu}), true},
      {"limited", limited({64, 96, T::q8_0, T::q5_0, T::q8_0, false, Activation::silu})},
      {"limited_fused_scaled", limited({20, 11, T::f32, T::f32, T::f32, true, Activation::silu})},
      {"fused_odd_width", {32, 36, T::q5_0, T::q5_0, T::f16, true, Activation::silu}},
  };
  return all;
}

class ExpertsTest : public testing::TestWithParam<Case> {};

TEST_P(ExpertsTest, FollowsTheRuleInAnyOrderOfExperts) {
  const Layer layer(GetParam().ffn, 7, 3, 5, 5, GetParam().scaled, GetParam().biased);
  const Floats expected = by_rule(layer);
  const Ints ascending = layer.ascending();
  const Ints descending(ascending.rbegin(), ascending.rend());
  const Floats all_at_once = same_everywhere([&](Rig& rig) { return layer.run(rig, ascending, 100); });
  expect_same_bits(all_at_once, expected, "all at once");
  const Floats one_by_one = same_everywhere([&](Rig& rig) { return layer.run(rig, descending, 1); });
  expect_same_bits(one_by_one, expected, "one by one, descending");
  const Floats shuffled = same_everywhere([&](Rig& rig) { return layer.run(rig, {3, 0, 6, 1, 5, 2, 4}, 3); });
  expect_same_bits(shuffled, expected, "three at a time");
}

TEST_P(ExpertsTest, ARowNeverSeesTheOthers) {
  const Layer layer(GetParam().ffn, 3, 2, 15, 6, GetParam().scaled, GetParam().biased);
  const Floats together = same_everywhere([&](Rig& rig) { return layer.run(rig, layer.ascending(), 100); });
  for (const Isa isa : isas()) {
    Rig rig(isa, 2);
    for (int64_t r = 0; r < layer.rows; r += 7) {
      Layer alone = layer;
      const auto columns = layer.ffn.columns;
      alone.rows = 1;
      alone.x.assign(layer.x.begin() + r * columns, layer.x.begin() + (r + 1) * columns);
      alone.weights.assign(layer.weights.begin() + r * layer.top_k, layer.weights.begin() + (r + 1) * layer.top_k);
      alone.ids.assign(layer.ids.begin() + r * layer.top_k, layer.ids.begin() + (r + 1) * layer.top_k);
      const Floats row(together.begin() + r * columns, together.begin() + (r + 1) * columns);
      expect_same_bits(alone.run(rig, alone.ascending(), 100), row, "row " + std::to_string(r));
    }
  }
}

TEST_P(ExpertsTest, ANaNInARowMakesItsOutputNaNsAndNoOther) {
  Layer layer(GetParam().ffn, 4, 2, 3, 7, GetParam().scaled, GetParam().biased);
  const int64_t columns = layer.ffn.columns;
  layer.x[static_cast<size_t>(columns + 3)] = NAN;
  const Floats got = same_everywhere([&](Rig& rig) { return layer.run(rig, layer.ascending(), 100); });
  for (int64_t i = 0; i < 3 * columns; ++i) ASSERT_EQ(std::isnan(got[static_cast<size_t>(i)]), i / columns == 1) << i;
}

INSTANTIATE_TEST_SUITE_P(Layers, ExpertsTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& layer) { return std::string(layer.param.name); });

TEST(Experts, MorePicksThanABatchAndATile) {
  const Layer layer({32, 32, TensorType::q4_0, TensorType::q4_0, TensorType::q8_0, false, Activation::silu}, 3, 2, 700,
                    8);
  const Floats expected = by_rule(layer);
  expect_same_bits(same_everywhere([&](Rig& rig) { return layer.run(rig, {2, 0, 1}, 100); }), expected, "700 rows");
}

TEST(Experts, SmallPassAfterALargeOneUsesTheSameScratch) {
  const ExpertFfn ffn{32, 32, TensorType::q8_0, TensorType::q8_0, TensorType::q8_0, false, Activation::silu};
  const Layer large(ffn, 4, 2, 50, 9), small(ffn, 4, 2, 2, 10);
  Rig rig(Isa::automatic, 2);
  expect_same_bits(large.run(rig, large.ascending(), 4), by_rule(large), "large");
  expect_same_bits(small.run(rig, small.ascending(), 4), by_rule(small), "small");
  expect_same_bits(large.run(rig, large.ascending(), 1), by_rule(large), "large again");
}

/// One pass in ascending order with the sums made on the way, or with every expert in two stages.
Floats run_in_order(const Layer& layer, Rig& rig, size_t per_call) {
  const Tensor input = rig.floats({layer.ffn.columns, layer.rows, 1, 1}, layer.x);
  const Tensor factors = rig.floats({layer.top_k, layer.rows, 1, 1}, layer.weights);
  const Tensor out = rig.floats({layer.ffn.columns, layer.rows, 1, 1});
  std::map<int32_t, std::vector<PickPlace>> places;
  const std::vector<ExpertGroup> all = layer.groups(layer.ascending(), places);
  rig->experts_begin(layer.on(rig), input, factors, out);
  for (size_t i = 0; i < all.size(); i += per_call) {
    rig->experts_run({all.data() + i, std::min(per_call, all.size() - i)});
  }
  rig->experts_finish(rig.ints({layer.top_k, layer.rows, 1, 1}, layer.ids), out);
  return rig.read(out);
}

Floats run_in_stages(const Layer& layer, Rig& rig, unsigned seed) {
  const Tensor input = rig.floats({layer.ffn.columns, layer.rows, 1, 1}, layer.x);
  const Tensor factors = rig.floats({layer.top_k, layer.rows, 1, 1}, layer.weights);
  const Tensor out = rig.floats({layer.ffn.columns, layer.rows, 1, 1});
  std::map<int32_t, std::vector<PickPlace>> places;
  std::vector<ExpertGroup> all = layer.groups(layer.ascending(), places);
  std::mt19937 random(seed);
  std::shuffle(all.begin(), all.end(), random);
  rig->experts_begin(layer.on(rig), input, factors);
  for (ExpertGroup group : all) {
    group.weights.down = nullptr;  // not there yet
    rig->experts_run({&group, 1}, ExpertStage::first);
  }
  std::shuffle(all.begin(), all.end(), random);
  for (ExpertGroup& group : all) group.weights.gate = group.weights.up = nullptr;  // not looked at again
  rig->experts_run(all, ExpertStage::last);
  rig->experts_finish(rig.ints({layer.top_k, layer.rows, 1, 1}, layer.ids), out);
  return rig.read(out);
}

TEST(Experts, StagesAndSumsOnTheWayChangeNoBit) {
  for (const bool fused : {false, true}) {
    for (const TensorType type : {TensorType::f32, TensorType::q8_0, TensorType::q4_0}) {
      const ExpertFfn ffn{64, 96, type, type, type, fused, Activation::silu};
      const Layer layer(ffn, 7, 3, 600, 21, false,
                        type != TensorType::q8_0);  // an expert has some 257 picks, a batch 512
      Rig one(Isa::automatic, 1), three(Isa::automatic, 3);
      const Floats want = layer.run(one, layer.ascending(), 7);
      for (Rig* rig : {&one, &three}) {
        EXPECT_EQ(bits(run_in_order(layer, *rig, 1)), bits(want));
        EXPECT_EQ(bits(run_in_order(layer, *rig, 3)), bits(want));
        EXPECT_EQ(bits(run_in_stages(layer, *rig, 5)), bits(want));
      }
      // A single expert for all: its picks are cut into batches.
      const Layer crowd(ffn, 1, 1, 1300, 22);
      EXPECT_EQ(bits(run_in_order(crowd, three, 1)), bits(crowd.run(one, {0}, 1)));
    }
  }
}

// --mmid-chunk: how many rows a thread takes at once changes no bit.
TEST(Experts, ChunksChangeNoBit) {
  for (const TensorType type : {TensorType::q4_0, TensorType::q8_0, TensorType::f16}) {
    const Layer layer({96, 160, type, type, type, false, Activation::silu}, 5, 2, 37, 23);
    const Floats want = by_rule(layer);
    for (const int threads : {1, 2, 3}) {
      for (const int64_t chunk : {0, 1, 8, 32, 1000}) {
        Rig rig(CpuOptions{threads, Isa::automatic, chunk});
        EXPECT_EQ(bits(layer.run(rig, layer.ascending(), 5)), bits(want)) << threads << " threads, chunk " << chunk;
      }
    }
  }
  EXPECT_THROW(Rig(CpuOptions{1, Isa::automatic, -1}), Error);
}

TEST(Experts, SumsOnTheWayNeedAscendingOrderAndWholeExperts) {
  const ExpertFfn ffn{64, 64, TensorType::q8_0, TensorType::q8_0, TensorType::q8_0, false, Activation::silu};
  const Layer layer(ffn, 3, 2, 4, 12);
  Rig rig;
  const Tensor x = rig.floats({64, 4, 1, 1}, layer.x), weights = rig.floats({2, 4, 1, 1}, layer.weights);
  const Tensor out = rig.floats({64, 4, 1, 1}), other = rig.floats({64, 4, 1, 1});
  std::map<int32_t, std::vector<PickPlace>> places;
  const std::vector<ExpertGroup> groups = layer.groups({2, 1, 0}, places);
  rig->experts_begin(ffn, x, weights, out);
  EXPECT_THROW(rig->experts_run(groups), Error);
  EXPECT_THROW(rig->experts_run(groups, ExpertStage::first), Error);
  EXPECT_THROW(rig->experts_finish(rig.ints({2, 4, 1, 1}, layer.ids), other), Error);
  EXPECT_THROW(rig->experts_begin(ffn, x, weights, out.head_rows(3)), Error);
}

TEST(Experts, IsNearTheF64Network) {
  const ExpertFfn ffn{96, 64, TensorType::f32, TensorType::f32, TensorType::f32, false, Activation::silu};
  const Layer layer(ffn, 4, 2, 3, 11);
  Rig rig;
  const Floats got = layer.run(rig, layer.ascending(), 4);
  const auto value = [](const Bytes& bytes, int64_t columns, int64_t r, int64_t c) {
    return static_cast<double>(reinterpret_cast<const float*>(bytes.data())[r * columns + c]);
  };
  double largest = 0, error = 0;
  for (int64_t row = 0; row < 3; ++row) {
    std::vector<double> sum(96, 0.0);
    for (int64_t k = 0; k < 2; ++k) {
      const auto e = static_cast<size_t>(layer.ids[static_cast<size_t>(row * 2 + k)]);
      std::vector<double> h(64);
      for (int64_t r = 0; r < 64; ++r) {
        double gate = 0, up = 0;
        for (int64_t c = 0; c < 96; ++c) {
          const double x = layer.x[static_cast<size_t>(row * 96 + c)];
          gate += value(layer.gate[e], 96, r, c) * x, up += value(layer.up[e], 96, r, c) * x;
        }
        h[static_cast<size_t>(r)] = gate / (1 + std::exp(-gate)) * up;
      }
      for (int64_t c = 0; c < 96; ++c) {
        double y = 0;
        for (int64_t r = 0; r < 64; ++r) y += value(layer.down[e], 64, c, r) * h[static_cast<size_t>(r)];
        sum[static_cast<size_t>(c)] += layer.weights[static_cast<size_t>(row * 2 + k)] * y;
      }
    }
    for (size_t c = 0; c < 96; ++c) {
      largest = std::max(largest, std::fabs(sum[c]));
      error = std::max(error, std::fabs(sum[c] - got[static_cast<size_t>(row) * 96 + c]));
    }
  }
  EXPECT_LE(error, 2e-6 * largest);
  EXPECT_GT(largest, 0.0);
}

TEST(Experts, BiasesMustFitTheExperts) {
  const ExpertFfn ffn{64, 32, TensorType::q8_0, TensorType::q8_0, TensorType::q8_0, false, Activation::silu};
  const Layer layer(ffn, 3, 1, 2, 12, false, true);
  Rig rig;
  const Tensor x = rig.floats({64, 2, 1, 1}, layer.x), weights = rig.floats({1, 2, 1, 1}, layer.weights);
  ExpertFfn wrong = layer.on(rig);
  wrong.up_bias = rig.floats({33, 3, 1, 1});
  EXPECT_THROW(rig->experts_begin(wrong, x, weights), Error);
  wrong = layer.on(rig);
  wrong.down_bias = rig.floats({64, 2, 1, 1});
  EXPECT_THROW(rig->experts_begin(wrong, x, weights), Error);
  rig->experts_begin(layer.on(rig), x, weights);
  std::map<int32_t, std::vector<PickPlace>> places;
  ExpertGroup beyond = layer.groups(layer.ascending(), places).front();
  beyond.expert = 3;
  EXPECT_THROW(rig->experts_run({&beyond, 1}), Error);
}

TEST(Experts, MisuseIsAnError) {
  const ExpertFfn ffn{64, 64, TensorType::q8_0, TensorType::q8_0, TensorType::q8_0, false, Activation::silu};
  const Layer layer(ffn, 2, 1, 2, 12);
  Rig rig;
  const Tensor x = rig.floats({64, 2, 1, 1}), weights = rig.floats({1, 2, 1, 1}), out = rig.floats({64, 2, 1, 1});
  const Tensor ids = rig.ints({1, 2, 1, 1}, {0, 1});
  std::map<int32_t, std::vector<PickPlace>> places;
  const std::vector<ExpertGroup> groups = layer.groups({0, 1}, places);
  EXPECT_THROW(rig->experts_run(groups), Error);
  EXPECT_THROW(rig->experts_finish(ids, out), Error);
  const auto begin_with = [&](auto change) {
    ExpertFfn changed = ffn;
    change(changed);
    rig->experts_begin(changed, x, weights);
  };
  EXPECT_THROW(begin_with([](ExpertFfn& f) { f.columns = 32; }), Error);
  EXPECT_THROW(begin_with([](ExpertFfn& f) { f.width = 33; }), Error);
  EXPECT_THROW(begin_with([](ExpertFfn& f) { f.width = 0; }), Error);
  EXPECT_THROW(begin_with([](ExpertFfn& f) { f.down_type = TensorType::q6_k; }), Error);
  EXPECT_THROW(begin_with([](ExpertFfn& f) { f.gate_type = TensorType::q1_0; }), Error);
  EXPECT_THROW(rig->experts_begin(ffn, x.head_rows(1), weights), Error);
  EXPECT_THROW(rig->experts_run(groups), Error);
  rig->experts_begin(ffn, x, weights);
  ExpertGroup bad = groups[0];
  bad.weights.up = nullptr;
  EXPECT_THROW(rig->experts_run({&bad, 1}), Error);
  const PickPlace outside[] = {{2, 2}}, crossed[] = {{0, 1}};
  bad = groups[0];
  bad.picks = outside;
  EXPECT_THROW(rig->experts_run({&bad, 1}), Error);
  bad.picks = crossed;
  EXPECT_THROW(rig->experts_run({&bad, 1}), Error);
  EXPECT_THROW(rig->experts_finish(ids.head_rows(1), out), Error);
  EXPECT_THROW(rig->experts_finish(ids, out.head_rows(1)), Error);
}

}  // namespace
}  // namespace moetier
