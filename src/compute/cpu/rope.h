// Rotary position embedding: the tables of an ubatch and the rotation.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// The angle per position of each pair, in f64, YaRN and factors included. `factors` is nullptr or dims/2 floats.
/// `out` is resized to dims/2.
void rope_frequencies(const RopeParams& params, const float* factors, std::vector<double>& out);

/// Compute::rope_table. `frequencies` is scratch that grows.
void rope_table(ThreadPool& pool, const RopeParams& params, const Tensor& positions, const Tensor& table,
                std::vector<double>& frequencies);

/// Compute::rope.
void rope(ThreadPool& pool, const RowOps& ops, const Tensor& x, const Tensor& table, RopePairs pairs,
          bool back = false);

}  // namespace moetier::cpu
