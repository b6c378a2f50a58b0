// Operations whose rows depend on the sequence's earlier rows through a state of fixed size: step by step, in parallel
// over sequences, heads and channels.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/kv.h"
#include "compute/cpu/recurrent_ops.h"

namespace moetier::cpu {

/// Compute's causal_conv, delta_rule, scan and compress. Not for several threads at once; scratch grows to the largest
/// call and stays.
class Recurrent {
 public:
  Recurrent(ThreadPool& pool, const RecurrentOps& ops) : pool_(pool), ops_(ops) {}

  void conv(const Tensor& x, const ConvParams& params, const BatchRows& rows, const Tensor& memory, const Tensor& out);
  void delta(const DeltaInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out);
  void scan(const ScanInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out);
  void compress(const CompressParams& in, const BatchRows& rows, const Tensor& memory, const Tensor& out);

 private:
  /// A sequence's rows in the call, order_[first] to order_[first + count - 1], and the slots of its state.
  struct Run {
    int64_t first = 0, count = 0;
    int64_t from = -1, to = -1;  ///< slots; -1: nothing yet, zeros
  };
  struct State;  ///< a state tensor, checked

  void make_runs(const BatchRows& rows, int64_t slots, const char* operation);
  const float* zeros(int64_t n);
  /// Calls body(run, head, first row of its state, rows) for all runs, heads and parts of a head's state; a part of a
  /// run costs about `row_cost` float operations for each row and position.
  template <typename Body>
  void share_state(const State& state, int64_t row_cost, Body body);

  ThreadPool& pool_;
  const RecurrentOps& ops_;
  std::vector<Run> runs_;
  std::vector<int32_t> order_, next_;
  std::vector<float> zeros_;
};

}  // namespace moetier::cpu
