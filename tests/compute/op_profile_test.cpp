// The profile counts bytes always and times only when asked; it changes no bit and allocates nothing in steady state.
#include "compute/op_profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compute/compute_fixture.h"
#include "support/allocations.h"

namespace moetier {
namespace {

using namespace testing_compute;

struct Product {
  explicit Product(Compute& compute) {
    buffer = compute.allocate(1 << 20);
    x = Tensor::packed(buffer.get(), 0, TensorType::f32, {64, 1, 1, 1});
    w = Tensor::packed(buffer.get(), 1024, TensorType::f32, {64, 256, 1, 1});
    out = Tensor::packed(buffer.get(), 1 << 19, TensorType::f32, {256, 1, 1, 1});
    auto* values = reinterpret_cast<float*>(buffer->host());
    for (int i = 0; i < (1 << 19) / 4; ++i) values[i] = static_cast<float>(i % 17) - 8.0f;
  }
  void run(Compute& compute) const {
    const MatmulTerm terms[] = {{w, out}};
    compute.matmul(x, terms);
    compute.add(out, out, out);
  }
  Floats result(Compute& compute) const {
    Floats values(256);
    compute.download(out, values.data());
    return values;
  }
  std::unique_ptr<Buffer> buffer;
  Tensor x, w, out;
};

constexpr uint64_t kBytes = 64 * 256 * 4;

TEST(OpProfile, CountsBytesWithoutTiming) {
  OpProfile profile(false);
  const auto compute = make_profiled_compute(make_cpu_compute({2}), profile);
  const Product product(*compute);
  product.run(*compute);
  product.run(*compute);
  EXPECT_EQ(profile.weight_bytes(), 2 * kBytes);
  EXPECT_TRUE(profile.lines(OpProfile::Phase::single).lines.empty());
}

TEST(OpProfile, TimesOperationsByWhatTheyAre) {
  OpProfile profile(true);
  const auto compute = make_profiled_compute(make_cpu_compute({2}), profile);
  const Product product(*compute);
  for (const int64_t rows : {1, 1, 7}) {
    profile.begin_batch(rows);
    product.run(*compute);
    profile.end_batch(0.5);
  }
  const OpProfile::Lines& single = profile.lines(OpProfile::Phase::single);
  EXPECT_EQ(single.rows, 2u);
  EXPECT_EQ(single.batch_seconds, 1.0);
  const OpKey key{"matmul", TensorType::f32, 64, 256, 1};
  const auto line = std::ranges::find(single.lines, key, &OpProfile::Line::key);
  ASSERT_NE(line, single.lines.end());
  EXPECT_EQ(line->calls, 2u);
  EXPECT_EQ(line->bytes, 2 * kBytes);
  EXPECT_GT(line->seconds, 0);
  EXPECT_EQ(profile.lines(OpProfile::Phase::batch).rows, 7u);
  EXPECT_EQ(profile.lines(OpProfile::Phase::batch).lines.size(), 2u);
  const uint64_t before = testing_support::allocations();
  profile.begin_batch(1);
  product.run(*compute);
  EXPECT_EQ(testing_support::allocations(), before);
  profile.reset();
  EXPECT_TRUE(single.lines.empty());
  EXPECT_EQ(profile.weight_bytes(), 4 * kBytes);
}

TEST(OpProfile, PartsAreTakenFromTheWhole) {
  OpProfile profile(true);
  {
    const OpTimer whole(&profile, {"whole"});
    profile.add({"part"}, 100, 50, 0);
  }
  const auto& lines = profile.lines(OpProfile::Phase::single).lines;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].key.name, "whole");
  EXPECT_EQ(lines[1].seconds, 0);
  EXPECT_EQ(lines[1].wait_seconds, 0);
}

TEST(OpProfile, ChangesNoBit) {
  OpProfile profile(true);
  const auto plain = make_cpu_compute({3}), profiled = make_profiled_compute(make_cpu_compute({3}), profile);
  const Product a(*plain), b(*profiled);
  a.run(*plain);
  b.run(*profiled);
  EXPECT_EQ(bits(a.result(*plain)), bits(b.result(*profiled)));
}

}  // namespace
}  // namespace moetier
