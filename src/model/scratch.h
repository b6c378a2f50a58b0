// The tensors that an ubatch passes through, allocated once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "compute/compute.h"

namespace moetier {

/// What a scratch tensor is for. Parts never share memory; a part is overwritten by each block that uses it.
enum class ScratchPart : uint8_t {
  // For one ubatch.
  normed,  ///< a block's normed input, later its output
  query,
  key,
  value,
  attended,      ///< what attention gives, heads side by side
  latent,        ///< latent attention: what the cache keeps of a row
  latent_query,  ///< the narrow form of its queries
  wide_query,    ///< its queries as wide as the cache's rows
  mixed,         ///< projections together: of recurrent layers, or queries beside gates
  mix_gate,      ///< what gates a recurrent layer's result
  step,          ///< of a recurrent layer's heads
  decay,         ///< likewise
  gate,
  up,           ///< of a dense FFN or a shared expert
  ffn_out,      ///< what a dense FFN adds to the residual
  shared_out,   ///< of a shared expert
  shared_gate,  ///< its gate, one number a row
  // Of layers with keys of blocks of positions.
  block_values,  ///< what keys of blocks are made of
  block_gates,
  index_query,  ///< queries that choose blocks
  block_picks,  ///< the blocks chosen, whole numbers
  grouped,      ///< the narrow form of what attention gives
  // Of several residual streams.
  streams,    ///< all of them normed
  stream_in,  ///< numbers that their weights are made of
  // For all ubatches that pass a layer together.
  rope,             ///< rotary table of the rows' positions
  windowed_rope,    ///< the table of layers that rotate otherwise
  block_rope,       ///< the table of the beginnings of short blocks
  long_block_rope,  ///< and of long ones
  stream_weights,   ///< of the FFN's half of a layer, or of the head
  chosen,           ///< experts that tokens look up, of several layers, whole numbers
  router_in,        ///< the router's input, where it is not that of the experts
  moe_in,           ///< the normed input of routed experts
  moe_out,          ///< what they add to the residual
  latent_in,        ///< a narrower form of moe_in that the experts see
  latent_out,       ///< what they give of it
  count,
};

/// How wide each part must be: blocks ask, the widest request counts.
class ScratchPlan {
 public:
  void need(ScratchPart part, int64_t columns);
  int64_t columns(ScratchPart part) const { return columns_[static_cast<size_t>(part)]; }
  /// Bytes of the parts of one ubatch of so many rows, or of a group.
  uint64_t ubatch_bytes(int64_t rows) const;
  uint64_t group_bytes(int64_t rows) const;

 private:
  std::array<int64_t, static_cast<size_t>(ScratchPart::count)> columns_{};
};

/// Scratch tensors for ubatches of up to max_rows rows, and for groups of ubatches. One per context.
class Scratch {
 public:
  /// A group has room for one ubatch until reserve_group() asks for more.
  Scratch(Compute& compute, const ScratchPlan& plan, int64_t max_rows);
  int64_t max_rows() const { return max_rows_; }  ///< of an ubatch
  /// Room for groups of so many rows. What the parts of the group held is lost if they grow.
  void reserve_group(int64_t rows);
  /// A packed f32 tensor [columns, rows] of that part. Wider or longer than planned is an error.
  Tensor get(ScratchPart part, int64_t columns, int64_t rows) const;
  uint64_t bytes() const { return ubatch_->bytes() + (group_ == nullptr ? 0 : group_->bytes()); }

 private:
  Compute& compute_;
  ScratchPlan plan_;
  int64_t max_rows_, group_rows_ = 0;
  std::array<size_t, static_cast<size_t>(ScratchPart::count)> offsets_{};
  std::unique_ptr<Buffer> ubatch_, group_;
};

}  // namespace moetier
