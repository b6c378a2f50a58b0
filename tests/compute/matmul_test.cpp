#include "compute/cpu/matmul.h"

#include "base/error.h"
#include "compute/kernel_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

class MatmulTest : public testing::TestWithParam<TensorType> {
 protected:
  TensorType type() const { return GetParam(); }
  int64_t columns() const { return 2 * std::max<int64_t>(type_info(type()).block_length, 48); }
};

Floats multiply(Rig& rig, const Tensor& weight, const Floats& x, int64_t n) {
  const Tensor input = rig.floats({weight.shape[0], n, 1, 1}, x);
  const Tensor out = rig.floats({weight.shape[1], n, 1, 1});
  const MatmulTerm term{weight, out};
  rig->matmul(input, {&term, 1});
  return rig.read(out);
}

TEST_P(MatmulTest, SameBitsForThreadsUnitsAndUbatches) {
  const int64_t rows = 43, n = 66;
  const Bytes bytes = make_weights(type(), columns(), rows, Fill::ordinary, 3);
  const Floats x = noise(static_cast<size_t>(columns() * n), 4);
  const Floats whole = same_everywhere(
      [&](Rig& rig) { return multiply(rig, weight_tensor(rig, type(), columns(), rows, bytes), x, n); });
  for (const int64_t ubatch : {1, 7, 32}) {
    const Floats parts = same_everywhere([&](Rig& rig) {
      const Tensor weight = weight_tensor(rig, type(), columns(), rows, bytes);
      Floats out;
      for (int64_t begin = 0; begin < n; begin += ubatch) {
        const int64_t count = std::min(ubatch, n - begin);
        const auto first = x.begin() + begin * columns();
        const Floats part = multiply(rig, weight, Floats(first, first + count * columns()), count);
        out.insert(out.end(), part.begin(), part.end());
      }
      return out;
    });
    expect_same_bits(parts, whole, "ubatch of " + std::to_string(ubatch));
  }
}

TEST_P(MatmulTest, AMatrixForEachHeadGivesTheBitsOfAProductOfItsOwn) {
  const int64_t rows = 19, heads = 3, n = 5, apart = columns() + 8;
  const Bytes bytes = make_weights(type(), columns(), rows * heads, Fill::ordinary, 23);
  const Floats x = noise(static_cast<size_t>(apart * heads * n), 24);
  const auto run = [&](Rig& rig, bool together) {
    const Tensor all = weight_tensor(rig, type(), columns(), rows * heads, bytes);
    const Tensor wide = rig.floats({apart, heads, n, 1}, x);
    const Tensor out = rig.floats({rows + 4, heads, n, 1});
    if (together) {
      rig->matmul_heads(wide.slice_columns(8, columns()), all.reshaped({columns(), rows, heads, 1}), 0.5f,
                        out.slice_columns(2, rows));
      return rig.read(out);
    }
    for (int64_t h = 0; h < heads; ++h) {
      Tensor in = rig.floats({apart, heads * n, 1, 1}, x).slice_columns(8, columns()), to = out.slice_columns(2, rows);
      for (Tensor* t : {&in, &to}) {
        t->offset += static_cast<size_t>(h) * t->row_stride;
        t->row_stride *= static_cast<size_t>(heads);
        t->shape = {t->shape[0], n, 1, 1};
      }
      const MatmulTerm term{all.slice_rows(h * rows, rows), to, {}, 0.5f};
      rig->matmul(in, {&term, 1});
    }
    return rig.read(out);
  };
  Rig rig;
  const Floats want = run(rig, false);
  expect_same_bits(same_everywhere([&](Rig& r) { return run(r, true); }), want, "heads");
}

TEST_P(MatmulTest, IsNearTheF64ProductOfTheActivationsThemselves) {
  const int64_t rows = 40, n = 3;
  const Bytes bytes = make_weights(type(), columns(), rows, Fill::ordinary, 13);
  std::vector<float> decoded(static_cast<size_t>(columns() * rows));
  decode(type(), bytes.data(), decoded.data(), columns() * rows);
  const Floats x = noise(static_cast<size_t>(columns() * n), 14);
  Rig rig;
  const Floats got = multiply(rig, weight_tensor(rig, type(), columns(), rows, bytes), x, n);
  // Quantized activations are off by at most half a step: 1/254 of the row's largest.
  const bool floats = type_info(type()).block_length == 1;
  for (int64_t t = 0; t < n; ++t) {
    const std::vector<double> row(x.begin() + t * columns(), x.begin() + (t + 1) * columns());
    double largest = 0;
    for (const double v : row) largest = std::max(largest, std::fabs(v));
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> w(decoded.begin() + r * columns(), decoded.begin() + (r + 1) * columns());
      double weight_sum = 0;
      for (const float v : w) weight_sum += std::fabs(static_cast<double>(v));
      const Exact exact = exact_dot(w, row);
      const double bound = 26 * 0x1p-24 * exact.magnitude + (floats ? 0 : weight_sum * largest / 254 * 1.001);
      ASSERT_LE(std::fabs(got[static_cast<size_t>(t * rows + r)] - exact.value), bound) << t << ", " << r;
    }
  }
}

TEST_P(MatmulTest, ANaNActivationMakesItsRowNaNsAndNoOther) {
  const int64_t rows = 11, n = 3;
  const Bytes bytes = make_weights(type(), columns(), rows, Fill::ordinary, 15);
  Floats x = noise(static_cast<size_t>(columns() * n), 16);
  x[static_cast<size_t>(columns() + 5)] = NAN;
  const Floats got = same_everywhere(
      [&](Rig& rig) { return multiply(rig, weight_tensor(rig, type(), columns(), rows, bytes), x, n); });
  for (int64_t i = 0; i < rows * n; ++i) ASSERT_EQ(std::isnan(got[static_cast<size_t>(i)]), i / rows == 1) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulTest, testing::ValuesIn(kernel_types()), type_test_name);

TEST(Matmul, TermsOfAllKindsShareOneInputWithWideRows) {
  const int64_t columns = 256, n = 5, out_rows = 20;
  const Floats x = noise(static_cast<size_t>((columns + 8) * n), 20);
  const Floats biases = noise(static_cast<size_t>(out_rows), 21);
  same_everywhere([&](Rig& rig) {
    // The input is columns 8.. of wider rows; outputs are columns 3.. of wider rows.
    const Tensor wide = rig.floats({columns + 8, n, 1, 1}, x);
    const Tensor input = wide.slice_columns(8, columns);
    std::vector<MatmulTerm> terms;
    std::vector<Tensor> outs;
    Floats expected, got;
    for (const TensorType type : {TensorType::q4_0, TensorType::f16, TensorType::q6_k, TensorType::q4_1}) {
      const Bytes bytes = make_weights(type, columns, out_rows, Fill::ordinary, 22);
      const Tensor weight = weight_tensor(rig, type, columns, out_rows, bytes);
      outs.push_back(rig.floats({out_rows + 6, n, 1, 1}, Floats(static_cast<size_t>((out_rows + 6) * n), 7.0f)));
      MatmulTerm term{weight, outs.back().slice_columns(3, out_rows)};
      const bool with_bias = terms.size() % 2 == 1;
      if (with_bias) term.bias = rig.floats({out_rows, 1, 1, 1}, biases);
      if (terms.size() > 1) term.scale = 1.7f;
      terms.push_back(term);
      Floats packed;
      for (int64_t t = 0; t < n; ++t) {
        packed.insert(packed.end(), x.begin() + t * (columns + 8) + 8, x.begin() + (t + 1) * (columns + 8));
      }
      const Floats product = multiply(rig, weight, packed, n);
      for (int64_t t = 0; t < n; ++t) {
        expected.insert(expected.end(), 3, 7.0f);
        for (int64_t r = 0; r < out_rows; ++r) {
          const float sum = product[static_cast<size_t>(t * out_rows + r)] * term.scale;
          expected.push_back(with_bias ? sum + biases[static_cast<size_t>(r)] : sum);
        }
        expected.insert(expected.end(), 3, 7.0f);
      }
    }
    rig->matmul(input, terms);
    for (const Tensor& out : outs) {
      const Floats values = rig.read(out);
      got.insert(got.end(), values.begin(), values.end());
    }
    expect_same_bits(got, expected, "four terms at once");
    return got;
  });
}

TEST(Matmul, MoreRowsThanAChunk) {
  const int64_t columns = 64, rows = 3000, n = 2;
  const Bytes bytes = make_weights(TensorType::q8_0, columns, rows, Fill::ordinary, 30);
  const Floats x = noise(static_cast<size_t>(columns * n), 31);
  const Floats all = same_everywhere(
      [&](Rig& rig) { return multiply(rig, weight_tensor(rig, TensorType::q8_0, columns, rows, bytes), x, n); });
  std::vector<float> decoded(static_cast<size_t>(columns * rows));
  decode(TensorType::q8_0, bytes.data(), decoded.data(), columns * rows);
  for (int64_t t = 0; t < n; ++t) {
    const float* row = x.data() + t * columns;
    const Bytes codes = encode_row(ActivationKind::blocks32, row, columns);
    const std::vector<double> activations = decode_row(ActivationKind::blocks32, codes, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const Exact exact = exact_dot({decoded.begin() + r * columns, decoded.begin() + (r + 1) * columns}, activations);
      ASSERT_NEAR(all[static_cast<size_t>(t * rows + r)], exact.value, 8 * 0x1p-24 * exact.magnitude);
    }
  }
}

TEST(Matmul, NoRowsAndNoTermsAreNothing) {
  Rig rig;
  const Bytes bytes = make_weights(TensorType::q4_0, 32, 8, Fill::ordinary, 40);
  const Tensor weight = weight_tensor(rig, TensorType::q4_0, 32, 8, bytes);
  const Tensor x = rig.floats({32, 1, 1, 1}), out = rig.floats({8, 1, 1, 1}, Floats(8, 5.0f));
  rig->matmul(x, {});
  const MatmulTerm term{weight, out.head_rows(0)};
  rig->matmul(x.head_rows(0), {&term, 1});
  EXPECT_EQ(rig.read(out), Floats(8, 5.0f));
}

TEST(Matmul, WrongShapesAndTypesAreErrors) {
  Rig rig;
  const auto weight = [&](TensorType type, int64_t columns, int64_t rows) {
    return weight_tensor(rig, type, columns, rows, make_weights(type, columns, rows, Fill::ordinary, 50));
  };
  const Tensor x = rig.floats({64, 2, 1, 1}), out = rig.floats({8, 2, 1, 1}), good = weight(TensorType::q8_0, 64, 8);
  const auto run = [&](const Tensor& input, const MatmulTerm& term) { rig->matmul(input, {&term, 1}); };
  EXPECT_NO_THROW(run(x, {good, out}));
  EXPECT_THROW(run(x, {weight(TensorType::q8_0, 32, 8), out}), Error);
  EXPECT_THROW(run(x, {weight(TensorType::q8_0, 64, 9), out}), Error);
  EXPECT_THROW(run(x.head_rows(1), {good, out}), Error);
  EXPECT_THROW(run(x, {good, out, rig.floats({7, 1, 1, 1})}), Error);
  EXPECT_THROW(run(x, {good, good}), Error);
  EXPECT_THROW(run(x, {Tensor{}, out}), Error);
  Tensor unknown = good;
  unknown.type = TensorType::q2_0;
  EXPECT_THROW(run(x, {unknown, out}), Error);
  Tensor layout = good;
  layout.layout = static_cast<Layout>(99);
  EXPECT_THROW(run(x, {layout, out}), Error);
  Tensor beyond = good;
  beyond.offset += 1;
  EXPECT_THROW(run(x, {beyond, out}), Error);
}

TEST(MatmulHeads, RefusesWhatDoesNotFit) {
  Rig rig;
  const Tensor x = rig.floats({16, 3, 2, 1}), w = rig.floats({16, 5, 3, 1}), out = rig.floats({5, 3, 2, 1});
  rig->matmul_heads(x, w, 1.0f, out);
  EXPECT_THROW(rig->matmul_heads(x, rig.floats({16, 5, 2, 1}), 1.0f, out), Error);
  EXPECT_THROW(rig->matmul_heads(x, rig.floats({8, 5, 3, 1}), 1.0f, out), Error);
  EXPECT_THROW(rig->matmul_heads(x, w, 1.0f, rig.floats({5, 2, 3, 1})), Error);
  EXPECT_THROW(rig->matmul_heads(rig.floats({16, 6, 1, 1}), w, 1.0f, out), Error);
}

}  // namespace
}  // namespace moetier
