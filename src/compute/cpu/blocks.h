// Attention that sees, beside a window of positions, keys of whole blocks of positions; and the choice of these blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/attention_ops.h"
#include "compute/cpu/kv.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// Compute::attention with a ratio, and Compute::choose_blocks. Not for several threads at once; scratch grows to the
/// largest call and stays.
///
/// An item is one row with some of its heads: each row has entries of its own, so there is nothing that rows could
/// share, and all heads share one key/value head.
class BlockAttention {
 public:
  BlockAttention(ThreadPool& pool, const RowOps& row_ops, const AttentionOps& ops)
      : pool_(pool), row_ops_(row_ops), ops_(ops) {}

  void attend(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
              const Tensor& out);
  void choose(const BlockChoice& in, const BatchRows& rows, const Tensor& keys, const Tensor& picks);

 private:
  struct Attend;  ///< one call's operands
  struct Choose;
  struct Work;  ///< one thread's scratch

  void attend_item(const Attend& call, int64_t row, int64_t first_head, int64_t heads, const Work& work) const;
  void one_block(const Attend& call, const Work& work, int64_t heads, int first, int last) const;
  void score(const Choose& call, int64_t row, int64_t first_entry, int64_t last_entry, const float* queries,
             float* widened, float* scores, float* to) const;
  void pick(const Choose& call, int64_t row, const float* scores, int32_t* order, int32_t* picks) const;

  ThreadPool& pool_;
  const RowOps& row_ops_;
  const AttentionOps& ops_;
  std::vector<float> scratch_, scores_;
  std::vector<int32_t> order_;
  std::vector<const std::byte*> places_;  ///< of all threads: where the rows of a block of entries stand
};

}  // namespace moetier::cpu
