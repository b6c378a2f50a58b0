#include "base/error.h"
#include "compute_fixture.h"
#include "quant/codec.h"

namespace moetier {
namespace {

using namespace testing_compute;

TEST(Elementwise, GetRowsDecodesWhatIsAsked) {
  const Ints ids = {3, 0, 3, 6};
  for (const TensorType type :
       {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0, TensorType::q4_0}) {
    const int64_t columns = 64, rows = 7;
    std::vector<std::byte> blocks(row_bytes(type, columns) * rows);
    const Floats x = noise(static_cast<size_t>(columns * rows), 1);
    encode(type, x.data(), blocks.data(), columns * rows);
    Floats decoded(static_cast<size_t>(columns * rows));
    decode(type, blocks.data(), decoded.data(), columns * rows);
    const Floats got = same_everywhere([&](Rig& rig) {
      const Tensor table = rig.make(type, {columns, rows, 1, 1});
      rig->upload(table, blocks.data());
      const Tensor out = rig.floats({columns, 4, 1, 1});
      rig->get_rows(table, rig.ints({4, 1, 1, 1}, ids), out);
      return rig.read(out);
    });
    for (size_t r = 0; r < ids.size(); ++r) {
      const auto from = decoded.begin() + ids[r] * columns;
      expect_same_bits(
          Floats(got.begin() + static_cast<int64_t>(r) * columns, got.begin() + static_cast<int64_t>(r + 1) * columns),
          Floats(from, from + columns), std::string(type_name(type)));
    }
  }
}

TEST(Elementwise, GetRowsRefusesIdsOutsideTheTable) {
  Rig rig;
  const Tensor table = rig.floats({8, 3, 1, 1}), out = rig.floats({8, 1, 1, 1});
  EXPECT_THROW(rig->get_rows(table, rig.ints({1, 1, 1, 1}, {3}), out), Error);
  EXPECT_THROW(rig->get_rows(table, rig.ints({1, 1, 1, 1}, {-1}), out), Error);
  EXPECT_THROW(rig->get_rows(table, rig.ints({2, 1, 1, 1}, {0, 1}), out), Error);
}

TEST(Elementwise, AddAlsoInPlaceAndOnLongRows) {
  for (const int64_t columns : {1, 5, 8, 4095, 4096, 100003}) {
    const Floats a = noise(static_cast<size_t>(2 * columns), 1), b = noise(static_cast<size_t>(2 * columns), 2);
    Floats want(a.size());
    for (size_t i = 0; i < a.size(); ++i) want[i] = a[i] + b[i];
    for (const int place : {0, 1, 2}) {
      const Floats got = same_everywhere([&](Rig& rig) {
        const Tensor x = rig.floats({columns, 2, 1, 1}, a), y = rig.floats({columns, 2, 1, 1}, b);
        const Tensor out = place == 0 ? rig.floats({columns, 2, 1, 1}) : place == 1 ? x : y;
        rig->add(x, y, out);
        return rig.read(out);
      });
      expect_same_bits(got, want, "add");
    }
  }
}

TEST(Elementwise, GluIsCloseToFloat64) {
  for (const Activation activation :
       {Activation::silu, Activation::gelu, Activation::sigmoid, Activation::relu, Activation::identity}) {
    for (const int64_t columns : {1, 3, 8, 17, 1000, 9000}) {
      const Floats gate = noise(static_cast<size_t>(3 * columns), 1, 4.0f),
                   up = noise(static_cast<size_t>(3 * columns), 2, 2.0f);
      const Floats got = same_everywhere([&](Rig& rig) {
        const Tensor g = rig.floats({columns, 3, 1, 1}, gate), u = rig.floats({columns, 3, 1, 1}, up);
        rig->glu(activation, g, u, u);
        return rig.read(u);
      });
      for (size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i], cube = 0.7978845608028654 * (g + 0.044715 * g * g * g);
        const double sigmoid = 1 / (1 + std::exp(-g));
        const double activated = activation == Activation::silu      ? g * sigmoid
                                 : activation == Activation::gelu    ? 0.5 * g * (1 + std::tanh(cube))
                                 : activation == Activation::sigmoid ? sigmoid
                                 : activation == Activation::relu    ? std::max(0.0, g)
                                                                     : g;
        ASSERT_NEAR(got[i], activated * up[i], 2e-6 * std::abs(std::max(std::abs(g), activated) * up[i])) << g;
      }
    }
  }
}

TEST(Elementwise, GluOfAFusedProjection) {
  const Floats both = noise(2 * 24 * 3, 4);
  Rig rig;
  const Tensor fused = rig.floats({48, 3, 1, 1}, both), out = rig.floats({24, 3, 1, 1});
  rig->glu(Activation::silu, fused.slice_columns(0, 24), fused.slice_columns(24, 24), out);
  Floats gate, up;
  for (size_t r = 0; r < 3; ++r) {
    gate.insert(gate.end(), both.begin() + static_cast<int64_t>(r) * 48,
                both.begin() + static_cast<int64_t>(r) * 48 + 24);
    up.insert(up.end(), both.begin() + static_cast<int64_t>(r) * 48 + 24,
              both.begin() + static_cast<int64_t>(r) * 48 + 48);
  }
  const Tensor apart = rig.floats({24, 3, 1, 1});
  rig->glu(Activation::silu, rig.floats({24, 3, 1, 1}, gate), rig.floats({24, 3, 1, 1}, up), apart);
  expect_same_bits(rig.read(out), rig.read(apart), "fused");
}

TEST(Elementwise, SigmoidGate) {
  const Floats gate = {0.0f, 100.0f, -3.0f}, x = noise(3 * 21, 5);
  const Floats got = same_everywhere([&](Rig& rig) {
    const Tensor in = rig.floats({21, 3, 1, 1}, x);
    rig->sigmoid_gate(rig.floats({1, 3, 1, 1}, gate), in, in);
    return rig.read(in);
  });
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = static_cast<double>(x[i]) / (1.0 + std::exp(-static_cast<double>(gate[i / 21])));
    EXPECT_NEAR(got[i], want, 5e-7 * std::abs(want));
  }
}

TEST(Elementwise, ScaleAndSoftCap) {
  const int64_t n = 5003;
  Floats x = noise(static_cast<size_t>(n * 2), 3, 20.0f);
  x[0] = 0.0f;
  x[1] = 1e6f;
  x[2] = -1e6f;
  const Floats scaled = same_everywhere([&](Rig& rig) {
    const Tensor in = rig.floats({n, 2, 1, 1}, x);
    rig->scale(0.3f, in, in);
    return rig.read(in);
  });
  const Floats capped = same_everywhere([&](Rig& rig) {
    const Tensor in = rig.floats({n, 2, 1, 1}, x);
    rig->soft_cap(5.0f, in, in);
    return rig.read(in);
  });
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(scaled[i], 0.3f * x[i]);
    EXPECT_NEAR(capped[i], 5 * std::tanh(static_cast<double>(x[i]) / 5), 3e-6) << x[i];
  }
  Rig rig;
  const Tensor in = rig.floats({4, 1, 1, 1}), other = rig.floats({3, 1, 1, 1});
  EXPECT_THROW(rig->scale(1.0f, in, other), Error);
  EXPECT_THROW(rig->soft_cap(1.0f, in, other), Error);
  EXPECT_THROW(rig->soft_cap(0.0f, in, in), Error);
  EXPECT_THROW(rig->glu(Activation::swiglu_oai, in, in, in), Error);
}

TEST(Elementwise, WrongShapesAreErrors) {
  Rig rig;
  const Tensor a = rig.floats({8, 2, 1, 1}), b = rig.floats({8, 1, 1, 1}), gate = rig.floats({1, 1, 1, 1});
  EXPECT_THROW(rig->add(a, rig.floats({7, 1, 1, 1}), a), Error);
  EXPECT_THROW(rig->add(a, rig.floats({8, 3, 1, 1}), a), Error);
  EXPECT_THROW(rig->add(a, a, b), Error);
  EXPECT_THROW(rig->glu(Activation::silu, a, b, a), Error);
  EXPECT_THROW(rig->sigmoid_gate(gate, a, a), Error);
  EXPECT_THROW(rig->add(a, {}, a), Error);
  Tensor negative = a;
  negative.shape[1] = -1;
  EXPECT_THROW(rig->add(negative, negative, negative), Error);
  Tensor huge = a;
  huge.shape = {8, int64_t{1} << 40, int64_t{1} << 40, 1};
  EXPECT_THROW(rig->add(huge, huge, huge), Error);
}

TEST(Elementwise, OddInputsDoNotCrash) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Floats odd = {nan, inf, -inf, 0.0f, -0.0f, 1e38f, -1e38f, 1e-45f, -1e-40f, 3.0f, nan};
  const Floats got = same_everywhere([&](Rig& rig) {
    const Tensor x = rig.floats({11, 1, 1, 1}, odd);
    const Tensor a = rig.floats({11, 1, 1, 1}), b = rig.floats({11, 1, 1, 1}), c = rig.floats({11, 1, 1, 1});
    rig->glu(Activation::silu, x, x, a);
    rig->glu(Activation::gelu, x, x, b);
    rig->rms_norm(x, {}, 1e-6f, c);
    Floats all = rig.read(a);
    for (const Tensor& t : {b, c}) {
      const Floats more = rig.read(t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], inf);
  EXPECT_EQ(got[3], 0.0f);
}

TEST(Elementwise, TemperatureGrowsInSteps) {
  const Floats x = noise(20 * 3 * 5, 9);
  const Ints positions{0, 6, 7, 100, 8191};
  const Floats got = same_everywhere([&](Rig& rig) {
    const Tensor t = rig.floats({20, 3, 5, 1}, x);
    rig->temperature({.scale = 0.4, .length = 8, .offset = 1}, rig.ints({5, 1, 1, 1}, positions), t);
    return rig.read(t);
  });
  for (size_t i = 0; i < x.size(); ++i) {
    const double steps = (positions[i / 60] + 1) / 8;
    ASSERT_NEAR(got[i], x[i] * (1 + 0.4 * std::log1p(steps)), 2e-7 * std::abs(got[i])) << i;
  }
  Rig rig;
  const Tensor t = rig.floats({20, 3, 5, 1}, x), p = rig.ints({5, 1, 1, 1}, positions);
  EXPECT_THROW(rig->temperature({.scale = 1, .length = 0}, p, t), Error);
}

TEST(Elementwise, AddsOneRowToAll) {
  const Floats x = noise(19 * 4, 10), row = noise(19, 11);
  const Floats got = same_everywhere([&](Rig& rig) {
    const Tensor t = rig.floats({19, 4, 1, 1}, x);
    rig->add(t, rig.floats({19, 1, 1, 1}, row), t);
    return rig.read(t);
  });
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], x[i] + row[i % 19]) << i;
}

}  // namespace
}  // namespace moetier
