// Attention over paged keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/attention_ops.h"
#include "compute/cpu/kv.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// Compute::attention. Not for several threads at once; scratch grows to the largest call and stays.
///
/// Work is cut in one of two ways, with equal bits. Whole: an item is a tile of neighbouring rows of one sequence with
/// some of the query heads of a KV head, over all their blocks; an f16 block is widened once for all of them. Split,
/// when rows and heads are too few for the threads and the context is long: an item also covers only some blocks and
/// leaves the state of each in scratch, and the merge in ascending blocks follows; as many blocks go in a wave as
/// scratch may hold.
class Attention {
 public:
  Attention(ThreadPool& pool, const RowOps& row_ops, const AttentionOps& ops)
      : pool_(pool), row_ops_(row_ops), ops_(ops) {}

  void run(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params, const Tensor& out);

 private:
  /// Rows [first, first + count) of one sequence.
  struct Tile {
    int64_t first = 0, count = 0;
    int64_t first_block = 0, last_block = 0;  ///< all blocks that any of them sees
  };
  struct Call;  ///< one call's operands and how it is cut
  struct Item;  ///< one tile with some heads
  struct KeysAndValues {
    BlockRows keys, values;
  };

  void cut(Call& call);
  void make_tiles(Call& call);
  Item item_at(const Call& call, int64_t index) const;
  void run_whole(const Call& call);
  void whole_item(const Call& call, const Item& item, int thread);
  void run_split(const Call& call);
  void split_item(const Call& call, const Item& item, int64_t first_block, int64_t last_block, int64_t wave_first,
                  int thread);
  void merge_wave(const Call& call, int64_t pair, int64_t wave_first, int64_t wave_last);
  KeysAndValues load_block(const Call& call, const Item& item, int64_t block, int thread);
  BlockRows load_rows(const Pages<const std::byte>& pages, int64_t page, int64_t head, int first, int last, bool widen,
                      float* scratch) const;
  const float* query(const Call& call, int64_t pair, int thread);
  float* thread_scratch(int thread) { return scratch_.data() + static_cast<size_t>(thread) * scratch_stride_; }
  void finish(const Call& call, const AttentionState& state, int64_t pair) const;

  ThreadPool& pool_;
  const RowOps& row_ops_;
  const AttentionOps& ops_;
  std::vector<Tile> tiles_;
  size_t scratch_stride_ = 0;
  std::vector<float> scratch_;          ///< per thread: widened keys, widened values, a padded query, one block's sums
  std::vector<AttentionState> states_;  ///< running states: of a thread's item (whole) or of all rows and heads (split)
  std::vector<float> sums_;             ///< their sums
  std::vector<AttentionState> partials_;  ///< split: states of single blocks
  std::vector<float> partial_sums_;
};

}  // namespace moetier::cpu
