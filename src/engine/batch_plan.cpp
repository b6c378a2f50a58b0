#include "engine/batch_plan.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {

void BatchPlan::reserve(int64_t rows, int64_t pages) {
  for (auto* list : {&tokens_, &positions_, &columns_, &wanted_, &states_from_, &states_to_})
    list->reserve(static_cast<size_t>(rows));
  page_table_.reserve(static_cast<size_t>(pages));
}

/// The sequence's column; rows of one sequence mostly stand together, or in turn with few others.
int32_t BatchPlan::member_of(SequenceState* state) {
  if (!columns_.empty() && sequences_[static_cast<size_t>(columns_.back())].state == state) return columns_.back();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].state == state) return static_cast<int32_t>(i);
  }
  sequences_.push_back({state, state->length(), 0, state->slot()});
  return static_cast<int32_t>(sequences_.size() - 1);
}

void BatchPlan::admit(std::span<const BatchRow> rows, const Limits& limits) {
  sequences_.clear();
  for (auto* list : {&tokens_, &positions_, &columns_, &wanted_}) list->clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const BatchRow& row = rows[i];
    if (row.token < 0 || row.token >= limits.vocab) {
      fail("row {} of the batch has token {}, and the vocabulary has {} tokens", i, row.token, limits.vocab);
    }
    if (row.sequence == nullptr) fail("row {} of the batch has no sequence", i);
    if (&row.sequence->pool() != limits.pool) fail("row {} of the batch has a sequence of another context", i);
    columns_.push_back(member_of(row.sequence));
    Member& member = sequences_[static_cast<size_t>(columns_.back())];
    if (member.before + member.rows >= limits.context) {
      fail(
          "the context is full: a sequence may hold {} positions, and row {} of the batch would be one more (raise the "
          "context size)",
          limits.context, i);
    }
    tokens_.push_back(row.token);
    positions_.push_back(static_cast<int32_t>(member.before + member.rows++));
    if (row.want_logits) wanted_.push_back(static_cast<int32_t>(i));
  }
  pages_per_sequence_ = 0;
  for (const Member& m : sequences_) pages_per_sequence_ = std::max(pages_per_sequence_, pages_for(m.before + m.rows));
  page_table_.assign(static_cast<size_t>(pages_per_sequence_) * sequences_.size(), 0);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    Member& m = sequences_[i];
    try {
      m.state->append(m.rows);
    } catch (...) {
      while (i-- > 0) sequences_[i].state->truncate(sequences_[i].before);
      throw;
    }
  }
  // Only now: an append may have moved a page that two sequences shared.
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const std::span<const int32_t> pages = sequences_[i].state->pages();
    std::copy(pages.begin(), pages.end(), page_table_.begin() + static_cast<ptrdiff_t>(i) * pages_per_sequence_);
  }
  note_states();
}

/// A sequence's first row goes on from the state before the batch, the others from what the rows before them left.
void BatchPlan::note_states() {
  states_from_.clear();
  states_to_.clear();
  for (size_t r = 0; r < columns_.size(); ++r) {
    const Member& m = sequences_[static_cast<size_t>(columns_[r])];
    const int32_t to = m.state->slot();
    if (to < 0) return;
    states_from_.push_back(positions_[r] == m.before ? m.slot : to);
    states_to_.push_back(to);
  }
}

void BatchPlan::undo() noexcept {
  for (const Member& m : sequences_) m.state->truncate(m.before);
}

}  // namespace moetier
