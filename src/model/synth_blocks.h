// Random weights, drawn as blocks of the type they are stored in.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/random.h"
#include "gguf/writer.h"
#include "quant/tensor_type.h"

namespace moetier {

/// What weights are drawn from: xoshiro256++.
class WeightRandom {
 public:
  explicit WeightRandom(uint64_t seed) : generator_(seed) {}
  uint64_t next() { return generator_.next_plusplus(); }
  /// Uniform in [-1, 1).
  double uniform() { return static_cast<double>(static_cast<int64_t>(next())) * 0x1p-63; }
  /// About normal, with mean 0 and standard deviation 1: a sum of twelve uniform numbers.
  double normal();
  void fill(void* out, size_t bytes);

 private:
  Xoshiro256 generator_;
};

/// The seed for one tensor: of the model's seed and the tensor's name.
uint64_t tensor_seed(uint64_t seed, std::string_view name);

/// A producer of `elements` weights of a computable type (a multiple of its block length) with the given standard
/// deviation. Their mean is zero, save for f32, which takes one.
std::function<void(const GgufWriter::Sink&)> random_weights(TensorType type, int64_t elements, double deviation,
                                                            uint64_t seed, double mean = 0.0);

}  // namespace moetier
