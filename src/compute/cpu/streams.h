// Residual streams that are mixed before and after each block.
#pragma once

#include "base/thread_pool.h"
#include "compute/compute.h"

namespace moetier::cpu {

/// As the members of Compute with the same names.
void stream_weights(ThreadPool& pool, const StreamParams& params, const Tensor& mixed, const Tensor& weights);
void join_streams(ThreadPool& pool, const StreamParams& params, const Tensor& x, const Tensor& weights,
                  const Tensor& out);
void spread_streams(ThreadPool& pool, const StreamParams& params, const Tensor& y, const Tensor& weights,
                    const Tensor& x);

}  // namespace moetier::cpu
