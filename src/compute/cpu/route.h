// The router: from logits to picks and their weights.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// Compute::route. Not for several threads at once; scratch grows to the widest router and stays.
class Router {
 public:
  Router(ThreadPool& pool, const RowOps& ops) : pool_(pool), ops_(ops) {}

  void run(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
           const Tensor& weights);

 private:
  ThreadPool& pool_;
  const RowOps& ops_;
  std::vector<float> scratch_;  ///< per thread: probabilities and selection scores of one row
  std::vector<int32_t> order_;  ///< per thread: experts and groups to choose from
};

}  // namespace moetier::cpu
