#include "model/scratch.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {
namespace {

constexpr size_t kParts = static_cast<size_t>(ScratchPart::count);
constexpr size_t kFirstOfGroup = static_cast<size_t>(ScratchPart::rope);

/// Where parts [first, end) of so many rows lie in their buffer; its size in bytes.
size_t lay_out(const ScratchPlan& plan, size_t first, size_t end, int64_t rows, std::array<size_t, kParts>& offsets) {
  constexpr size_t kAlignment = 64;
  size_t at = 0;
  for (size_t i = first; i < end; ++i) {
    offsets[i] = at;
    const auto cells = static_cast<size_t>(plan.columns(static_cast<ScratchPart>(i)) * rows);
    at += (cells * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  return at;
}

}  // namespace

void ScratchPlan::need(ScratchPart part, int64_t columns) {
  int64_t& have = columns_[static_cast<size_t>(part)];
  have = std::max(have, columns);
}

uint64_t ScratchPlan::ubatch_bytes(int64_t rows) const {
  std::array<size_t, kParts> offsets{};
  return lay_out(*this, 0, kFirstOfGroup, rows, offsets);
}

uint64_t ScratchPlan::group_bytes(int64_t rows) const {
  std::array<size_t, kParts> offsets{};
  return lay_out(*this, kFirstOfGroup, kParts, rows, offsets);
}

Scratch::Scratch(Compute& compute, const ScratchPlan& plan, int64_t max_rows)
    : compute_(compute), plan_(plan), max_rows_(max_rows) {
  if (max_rows < 1) fail("an ubatch must hold at least one row, not {}", max_rows);
  ubatch_ = compute.allocate(lay_out(plan, 0, kFirstOfGroup, max_rows, offsets_));
  reserve_group(max_rows);
}

void Scratch::reserve_group(int64_t rows) {
  if (rows <= group_rows_) return;
  group_rows_ = 0;  // an allocation may fail, and the request with it
  group_.reset();   // before more is asked for
  group_ = compute_.allocate(lay_out(plan_, kFirstOfGroup, kParts, rows, offsets_));
  group_rows_ = rows;
}

Tensor Scratch::get(ScratchPart part, int64_t columns, int64_t rows) const {
  const bool of_group = static_cast<size_t>(part) >= kFirstOfGroup;
  const int64_t most = of_group ? group_rows_ : max_rows_;
  if (columns > plan_.columns(part) || rows > most)
    fail("scratch for {} rows of {} columns was asked for [{}, {}]", most, plan_.columns(part), columns, rows);
  return Tensor::packed((of_group ? group_ : ubatch_).get(), offsets_[static_cast<size_t>(part)], TensorType::f32,
                        {columns, rows, 1, 1});
}

}  // namespace moetier
