// The tensors of a model that is to be made.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quant/mixture.h"

namespace moetier {

/// One tensor to be made.
struct Planned {
  MixtureTensor tensor;
  double deviation = 0.0, mean = 0.0;
  std::vector<float> values = {};     ///< if not empty, the tensor itself (f32)
  std::vector<int32_t> numbers = {};  ///< likewise (i32)
  bool router = false;
};

inline Planned planned(std::string name, std::vector<int64_t> shape, double deviation, double mean = 0.0) {
  Planned p;
  p.tensor.name = std::move(name);
  p.tensor.n_dims = static_cast<int>(shape.size());
  std::ranges::copy(shape, p.tensor.shape.begin());
  p.deviation = deviation;
  p.mean = mean;
  return p;
}

/// Adds tensors under a prefix such as "blk.3.".
class Adder {
 public:
  Adder(std::vector<Planned>& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}
  /// Matrices (and stacks) keep a normalized input's size.
  void matrix(std::string_view name, std::vector<int64_t> shape, double gain = 1.0) {
    const double deviation = gain / std::sqrt(static_cast<double>(shape[0]));
    add(planned(fmt::format("{}{}.weight", prefix_, name), std::move(shape), deviation));
  }
  void norm(std::string_view name, int64_t n) {
    add(planned(fmt::format("{}{}.weight", prefix_, name), {n}, 0.15, 1.0));
  }
  void bias(std::string_view name, std::vector<int64_t> shape) {
    add(planned(fmt::format("{}{}.bias", prefix_, name), std::move(shape), 0.1));
  }
  const std::string& prefix() const { return prefix_; }
  void add(Planned p) { tensors_.push_back(std::move(p)); }

 private:
  std::vector<Planned>& tensors_;
  std::string prefix_;
};

}  // namespace moetier
