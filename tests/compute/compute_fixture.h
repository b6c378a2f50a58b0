// What the tests of the CPU operations share: tensors from plain arrays, and the same work on every instruction set and
// number of threads.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"
#include "compute/cpu/isa.h"
#include "quant/half.h"

namespace moetier::testing_compute {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

/// A CPU compute with the tensors that a test made on it.
class Rig {
 public:
  explicit Rig(Isa isa = Isa::automatic, int threads = 1) : Rig(CpuOptions{threads, isa}) {}
  explicit Rig(const CpuOptions& options) : compute_(make_cpu_compute(options)) {}
  Compute* operator->() { return compute_.get(); }
  Compute& compute() { return *compute_; }

  Tensor make(TensorType type, std::array<int64_t, 4> shape) {
    Tensor t = Tensor::packed(nullptr, 0, type, shape);
    buffers_.push_back(compute_->allocate(t.bytes()));
    t.buffer = buffers_.back().get();
    return t;
  }
  Tensor floats(std::array<int64_t, 4> shape) { return make(TensorType::f32, shape); }
  Tensor floats(std::array<int64_t, 4> shape, const Floats& values) {
    const Tensor t = floats(shape);
    EXPECT_EQ(static_cast<size_t>(t.elements()), values.size());
    compute_->upload(t, values.data());
    return t;
  }
  Tensor ints(std::array<int64_t, 4> shape, const Ints& values) {
    const Tensor t = make(TensorType::i32, shape);
    EXPECT_EQ(static_cast<size_t>(t.elements()), values.size());
    compute_->upload(t, values.data());
    return t;
  }
  Floats read(const Tensor& t) {
    Floats out(static_cast<size_t>(t.elements()));
    compute_->download(t, out.data());
    return out;
  }
  Ints read_ints(const Tensor& t) {
    Ints out(static_cast<size_t>(t.elements()));
    compute_->download(t, out.data());
    return out;
  }

 private:
  std::unique_ptr<Compute> compute_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

inline Floats noise(size_t n, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  Floats out(n);
  for (float& x : out) {
    // A sum of four uniforms: near enough to normal, and the same with every library.
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f;
    x = scale * 1.7f * sum;
  }
  return out;
}

inline std::vector<uint32_t> bits(const Floats& values) {
  std::vector<uint32_t> out(values.size());
  // Which NaN it is may differ from machine to machine; that it is one may not.
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = std::isnan(values[i]) ? 0x7fc00000u : std::bit_cast<uint32_t>(values[i]);
  }
  return out;
}

inline void expect_same_bits(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const auto a = bits(got), b = bits(want);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i], b[i]) << what << ", element " << i << ": " << got[i] << " against " << want[i];
  }
}

/// Runs the work on every instruction set that this machine has with 1, 2, 3 and 8 threads, expects equal bits, and
/// returns them.
inline Floats same_everywhere(const std::function<Floats(Rig&)>& work) {
  Floats first;
  bool has_first = false;
  for (const Isa isa : available_isas()) {
    for (const int threads : {1, 2, 3, 8}) {
      Rig rig(isa, threads);
      const Floats result = work(rig);
      if (has_first) expect_same_bits(result, first, rig->name());
      if (!has_first) first = result;
      has_first = true;
    }
  }
  return first;
}

/// The order of docs/numbers.md, written down plainly.
inline float plain_tree16(Floats p) {
  for (size_t s = 8; s >= 1; s /= 2) {
    for (size_t i = 0; i < s; ++i) p[i] = p[i] + p[i + s];
  }
  return p[0];
}

}  // namespace moetier::testing_compute
