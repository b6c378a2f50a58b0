// Matrix products on the CPU: weights of any computable type times rows of activations.
#pragma once

#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// Compute::matmul on the CPU. Not for several threads at once. Scratch grows to the largest call seen and stays.
class CpuMatmul {
 public:
  /// `pool` must outlive this.
  CpuMatmul(ThreadPool& pool, Isa isa);
  ~CpuMatmul();
  CpuMatmul(const CpuMatmul&) = delete;
  CpuMatmul& operator=(const CpuMatmul&) = delete;

  /// out = weight . x (+ bias) for every term. x f32 [columns, n]: its rows may be wider apart than packed, as may the
  /// rows of weights and outs. An out may not overlap x. Shapes that do not fit, or a type without kernels, are errors.
  void run(const Tensor& x, std::span<const MatmulTerm> terms);
  /// out[:, h, r] = weight[:, :, h] . x[:, h, r] (* scale): Compute::matmul_heads. Strides and errors as above.
  void run_heads(const Tensor& x, const Tensor& weight, float scale, const Tensor& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
