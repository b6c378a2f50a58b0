// The tensors that an ubatch passes through, allocated once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "compute/compute.h"

namespace moetier {

/// What a scratch tensor is for. Parts never share memory; a part is overwritten by each block that uses it.
enum class ScratchPart : uint8_t {
  normed,  ///< a block's normed input, later its output
  query,
  key,
  value,
  attended,  ///< what attention gives, heads side by side
  gate,
  up,           ///< of a dense FFN or a shared expert
  ffn_out,      ///< what an FFN adds to the residual
  shared_out,   ///< of a shared expert
  shared_gate,  ///< its gate, one number a row
  rope,         ///< rotary table of the rows' positions
  count,
};

/// How wide each part must be: blocks ask, the widest request counts.
class ScratchPlan {
 public:
  void need(ScratchPart part, int64_t columns);
  int64_t columns(ScratchPart part) const { return columns_[static_cast<size_t>(part)]; }

 private:
  std::array<int64_t, static_cast<size_t>(ScratchPart::count)> columns_{};
};

/// Scratch tensors for one ubatch of up to max_rows rows. One per context.
class Scratch {
 public:
  Scratch(Compute& compute, const ScratchPlan& plan, int64_t max_rows);
  int64_t max_rows() const { return max_rows_; }
  /// A packed f32 tensor [columns, rows] of that part. Wider or longer than planned is an error.
  Tensor get(ScratchPart part, int64_t columns, int64_t rows) const;
  uint64_t bytes() const { return buffer_->bytes(); }

 private:
  ScratchPlan plan_;
  int64_t max_rows_;
  std::array<size_t, static_cast<size_t>(ScratchPart::count)> offsets_{};
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace moetier
