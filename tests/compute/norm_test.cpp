#include "base/error.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

constexpr float kEps = 1e-6f;

Floats run_norm(Rig& rig, int64_t columns, int64_t rows, const Floats& x, const Floats& weight) {
  const Tensor in = rig.floats({columns, rows, 1, 1}, x), out = rig.floats({columns, rows, 1, 1});
  rig->rms_norm(in, weight.empty() ? Tensor{} : rig.floats({columns, 1, 1, 1}, weight), kEps, out);
  return rig.read(out);
}

TEST(Norm, CloseToFloat64AndTheSameEverywhere) {
  for (const int64_t columns : {1, 7, 8, 9, 15, 16, 24, 31, 40, 80, 128, 1000, 2048}) {
    const int64_t rows = columns == 2048 ? 40 : 3;
    const Floats x = noise(static_cast<size_t>(columns * rows), 1, 3.0f), w = noise(static_cast<size_t>(columns), 2);
    for (const bool weighted : {true, false}) {
      const Floats got =
          same_everywhere([&](Rig& rig) { return run_norm(rig, columns, rows, x, weighted ? w : Floats{}); });
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += std::pow(static_cast<double>(x[r * columns + c]), 2);
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(columns) + 1e-6);
        for (int64_t c = 0; c < columns; ++c) {
          const double want = x[r * columns + c] * scale * (weighted ? w[c] : 1.0f);
          ASSERT_NEAR(got[r * columns + c], want, 1e-6 * std::abs(want) + 1e-30) << columns << " columns";
        }
      }
    }
  }
}

TEST(Norm, TakesTheOrderOfTheRule) {
  const int64_t columns = 43;
  const Floats x = noise(43, 3), w = noise(43, 4);
  Rig rig;
  const Floats got = run_norm(rig, columns, 1, x, w);
  Floats partial(16, 0.0f);
  for (size_t c = 0; c < 43; ++c) partial[c % 16] = partial[c % 16] + x[c] * x[c];
  const float scale = 1.0f / std::sqrt(plain_tree16(partial) / 43.0f + kEps);
  Floats want(43);
  for (size_t c = 0; c < 43; ++c) want[c] = (x[c] * scale) * w[c];
  expect_same_bits(got, want, "norm");
}

TEST(Norm, RowsOfWeightsAreTakenInTurn) {
  const Floats x = noise(24 * 6, 7), w = noise(24 * 3, 8);
  Rig rig;
  const Tensor in = rig.floats({24, 3, 2, 1}, x), out = rig.floats(in.shape);
  rig->rms_norm(in, rig.floats({24, 3, 1, 1}, w), kEps, out);
  const Floats got = rig.read(out);
  for (size_t r = 0; r < 6; ++r) {
    const auto row = [](const Floats& all, size_t i) {
      return Floats(all.begin() + static_cast<int64_t>(24 * i), all.begin() + static_cast<int64_t>(24 * (i + 1)));
    };
    expect_same_bits(row(got, r), run_norm(rig, 24, 1, row(x, r), row(w, r % 3)), "row");
  }
  EXPECT_THROW(rig->rms_norm(in, rig.floats({24, 4, 1, 1}), kEps, out), Error);
}

TEST(Norm, ByHand) {
  Rig rig;
  const Tensor x = rig.floats({4, 2, 1, 1}, {2, -2, 2, 2, 0, 0, 0, 0}), out = rig.floats({4, 2, 1, 1});
  rig->rms_norm(x, rig.floats({4, 1, 1, 1}, {1, 2, 3, -4}), 0.0f, out);
  const Floats got = rig.read(out);
  EXPECT_EQ(Floats(got.begin(), got.begin() + 4), (Floats{1, -2, 3, -4}));
  EXPECT_TRUE(std::isnan(got[4]));  // 0 * (1 / sqrt(0)): without eps a zero row has no direction
}

TEST(Norm, InPlaceByHeadAndOverAView) {
  const Floats x = noise(24 * 4 * 5, 5), w = noise(24, 6);
  Rig rig;
  // Heads of 24 in rows of 5 heads, of which the view takes heads 1 to 3: rows of a fused projection.
  const Tensor wide = rig.floats({24 * 5, 4, 1, 1}, x);
  const Tensor view = wide.slice_columns(24, 24 * 3);
  const Tensor weight = rig.floats({24 * 3, 1, 1, 1}, noise(72, 7));
  const Tensor out = rig.floats({72, 4, 1, 1});
  rig->rms_norm(view, weight, kEps, out);
  const Floats apart = rig.read(out);
  rig->rms_norm(view, weight, kEps, view);
  expect_same_bits(rig.read(view), apart, "in place");
  const Floats all = rig.read(wide);
  for (size_t r = 0; r < 4; ++r) {
    for (size_t c = 0; c < 24; ++c) EXPECT_EQ(all[r * 120 + c], x[r * 120 + c]);
    for (size_t c = 96; c < 120; ++c) EXPECT_EQ(all[r * 120 + c], x[r * 120 + c]);
  }
  const Tensor heads = rig.floats({24, 5, 4, 1}, x);
  rig->rms_norm(heads, rig.floats({24, 1, 1, 1}, w), kEps, heads);
  Rig other;
  expect_same_bits(rig.read(heads), run_norm(other, 24, 20, x, w), "heads");
}

TEST(Norm, ARowDoesNotSeeItsNeighbours) {
  const Floats x = noise(100 * 9, 8), w = noise(100, 9);
  Rig rig;
  const Floats together = run_norm(rig, 100, 9, x, w);
  for (int64_t r = 0; r < 9; ++r) {
    const Floats one = run_norm(rig, 100, 1, Floats(x.begin() + r * 100, x.begin() + (r + 1) * 100), w);
    expect_same_bits(one, Floats(together.begin() + r * 100, together.begin() + (r + 1) * 100), "row");
  }
}

TEST(Norm, WrongShapesAreErrors) {
  Rig rig;
  const Tensor x = rig.floats({8, 2, 1, 1}), weight = rig.floats({7, 1, 1, 1});
  EXPECT_THROW(rig->rms_norm(x, weight, kEps, x), std::exception);
  EXPECT_THROW(rig->rms_norm(x, {}, kEps, rig.floats({8, 3, 1, 1})), std::exception);
  EXPECT_THROW(rig->rms_norm(rig.ints({8, 1, 1, 1}, Ints(8)), {}, kEps, x), std::exception);
  Tensor past = x;
  past.offset = 4;
  EXPECT_THROW(rig->rms_norm(past, {}, kEps, x), std::exception);
  past.offset = SIZE_MAX - 3;
  EXPECT_THROW(rig->rms_norm(past, {}, kEps, x), std::exception);
}

}  // namespace
}  // namespace moetier
