#include "model/scratch.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {

void ScratchPlan::need(ScratchPart part, int64_t columns) {
  int64_t& have = columns_[static_cast<size_t>(part)];
  have = std::max(have, columns);
}

Scratch::Scratch(Compute& compute, const ScratchPlan& plan, int64_t max_rows) : plan_(plan), max_rows_(max_rows) {
  if (max_rows < 1) fail("an ubatch must hold at least one row, not {}", max_rows);
  constexpr size_t kAlignment = 64;
  size_t end = 0;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    offsets_[i] = end;
    const auto cells = static_cast<size_t>(plan.columns(static_cast<ScratchPart>(i)) * max_rows);
    end += (cells * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  buffer_ = compute.allocate(end);
}

Tensor Scratch::get(ScratchPart part, int64_t columns, int64_t rows) const {
  if (columns > plan_.columns(part) || rows > max_rows_)
    fail("scratch for {} rows of {} columns was asked for [{}, {}]", max_rows_, plan_.columns(part), columns, rows);
  return Tensor::packed(buffer_.get(), offsets_[static_cast<size_t>(part)], TensorType::f32, {columns, rows, 1, 1});
}

}  // namespace moetier
