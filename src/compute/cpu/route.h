// The router: from logits to picks and their weights.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"

namespace moetier::cpu {

/// Compute::route. Not for several threads at once; scratch grows to the widest router and stays.
class Router {
 public:
  explicit Router(ThreadPool& pool) : pool_(pool) {}

  void run(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
           const Tensor& weights);

 private:
  ThreadPool& pool_;
  std::vector<float> scratch_;  ///< per thread: probabilities and selection scores of one row
  std::vector<int32_t> order_;  ///< per thread: experts and groups to choose from
};

}  // namespace moetier::cpu
