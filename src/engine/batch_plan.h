// A batch as the model sees it: tokens, positions, and where each row's sequence keeps its pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/context.h"

namespace moetier {

/// Keeps its memory between batches.
class BatchPlan {
 public:
  struct Limits {
    const KvPool* pool = nullptr;
    int64_t context = 0;  ///< positions a sequence may hold
    int64_t vocab = 0;
  };
  /// Takes memory for batches of so many rows and pages beforehand.
  void reserve(int64_t rows, int64_t pages);
  /// Checks all rows, then makes room in their sequences. On an error every sequence is as it was.
  void admit(std::span<const BatchRow> rows, const Limits& limits);
  /// Takes the rows of the last admit() out of their sequences again.
  void undo() noexcept;

  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t pages_per_sequence() const { return pages_per_sequence_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const int32_t> columns() const { return columns_; }        ///< of the page table, by row
  std::span<const int32_t> page_table() const { return page_table_; }  ///< [pages_per_sequence, sequences]
  /// By row, slots of recurrent state: BatchRows::states_from and states_to. Empty without recurrent layers.
  std::span<const int32_t> states_from() const { return states_from_; }
  std::span<const int32_t> states_to() const { return states_to_; }
  std::span<const int32_t> wanted() const { return wanted_; }  ///< rows whose logits are wanted, ascending

 private:
  struct Member {
    SequenceState* state;
    int64_t before;  // its length
    int64_t rows;
    int32_t slot;  // of its state before
  };
  int32_t member_of(SequenceState* state);

  std::vector<Member> sequences_;
  void note_states();

  std::vector<int32_t> tokens_, positions_, columns_, page_table_, wanted_, states_from_, states_to_;
  int64_t pages_per_sequence_ = 0;
};

}  // namespace moetier
