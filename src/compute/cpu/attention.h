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
/// some of the query heads of a KV head, over all their blocks; each block is read once for all of these queries, in
/// pieces that stay in the nearest cache where they must be widened. Split, when rows and heads are too few for the
/// threads and the context is long: an item also covers only some blocks and leaves the state of each in scratch, and
/// the merge in ascending blocks follows; as many blocks go in a wave as scratch may hold.
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
  /// One thread's scratch. An item's queries stand row by row, a row's heads together.
  struct Work {
    float* queries = nullptr;  ///< padded
    float* scores = nullptr;   ///< a row of kPagePositions per query
    float* widened = nullptr;  ///< some positions' keys or values
    AttentionStates block;     ///< of one block
    AttentionStates running;   ///< whole: of all blocks so far
  };

  void cut(Call& call);
  void make_tiles(Call& call);
  Item item_at(const Call& call, int64_t index) const;
  void make_scratch(const Call& call);
  Work work_of(const Call& call, int thread);
  void run_whole(const Call& call);
  void whole_item(const Call& call, const Item& item, int thread);
  void run_split(const Call& call);
  void split_item(const Call& call, int64_t index, int64_t first_block, int64_t last_block, int64_t wave_first,
                  int thread);
  void merge_wave(const Call& call, int64_t unit, int64_t wave_first, int64_t wave_last);
  void load_queries(const Call& call, const Item& item, float* to) const;
  BlockRows load_rows(const Pages<const std::byte>& pages, const std::byte* page, int first, int last, bool widen,
                      float* scratch) const;
  void one_block(const Call& call, const Item& item, int64_t block, const Work& work,
                 const AttentionStates& states) const;
  void finish(const Call& call, const AttentionStates& states, int64_t row, int64_t first_head, int64_t heads);

  ThreadPool& pool_;
  const RowOps& row_ops_;
  const AttentionOps& ops_;
  std::vector<Tile> tiles_;
  size_t scratch_stride_ = 0;
  std::vector<float> sink_;      ///< with sinks: for each, its logit, a sum of 1 and values of 0, as one more block
  std::vector<float> scratch_;   ///< of all threads
  std::vector<float> running_;   ///< split: running states, item by item: all m, all l, all o
  std::vector<float> partials_;  ///< split: states of single blocks, item by item and block by block
};

}  // namespace moetier::cpu
