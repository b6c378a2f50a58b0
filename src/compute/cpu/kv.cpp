#include "compute/cpu/kv.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "compute/cpu/share.h"
#include "quant/blocks.h"
#include "quant/half.h"

namespace moetier::cpu {
namespace {

KvForm form_of(const Tensor& tensor, OperandName name) {
  if (tensor.type == TensorType::f16) return KvForm::f16;
  if (tensor.type == TensorType::f32) return KvForm::f32;
  if (tensor.type == TensorType::q8_0) return KvForm::q8_0;
  fail("{}: {} is of type {}; a KV cache is f16, f32 or q8_0", name.operation, name.operand, type_name(tensor.type));
}

size_t alignment_of(KvForm form) {
  return form == KvForm::f32 ? alignof(float) : alignof(uint16_t);
}

template <typename Byte>
Pages<Byte> pages_of(const Tensor& tensor, Byte* base, OperandName name, int64_t positions) {
  if (tensor.shape[1] != positions) {
    fail("{}: {} has {} positions in a page, but {} are needed", name.operation, name.operand, tensor.shape[1],
         positions);
  }
  return {base, tensor.shape[0], tensor.shape[2], tensor.shape[3], positions, tensor.row_stride, form_of(tensor, name)};
}

/// Q8_0 with the scale and codes of docs/numbers.md, "Activation quantization".
void to_q8_0(const ActivationEncoders& encoders, const float* x, int64_t n, std::byte* to) {
  auto* block = reinterpret_cast<BlockQ8_0*>(to);
  for (int64_t c = 0; c < n; c += kBlock32, ++block) {
    Codes32 codes;
    encoders.blocks32(x + c, &codes, kBlock32);
    block->d = f32_to_f16(codes.scale);
    std::memcpy(block->qs, codes.codes, sizeof(block->qs));
  }
}

/// One row's vectors of all KV heads into the row's place.
void store_row(const RowOps& ops, const ActivationEncoders& encoders, const FloatsIn& from, int64_t row,
               const Pages<std::byte>& to, int64_t page, int64_t slot) {
  for (int64_t head = 0; head < to.heads; ++head) {
    const float* x = from.row(row * to.heads + head);
    std::byte* target = to.rows(page, head) + static_cast<size_t>(slot) * to.stride;
    if (to.form == KvForm::f16) {
      ops.to_f16(x, to.width, reinterpret_cast<uint16_t*>(target));
    } else if (to.form == KvForm::q8_0) {
      to_q8_0(encoders, x, to.width, target);
    } else {
      std::memcpy(target, x, static_cast<size_t>(to.width) * sizeof(float));
    }
  }
}

}  // namespace

Pages<const std::byte> pages_in(const Tensor& tensor, OperandName name, int64_t positions) {
  const size_t alignment = alignment_of(form_of(tensor, name));
  return pages_of<const std::byte>(tensor, checked_address(tensor, tensor.type, alignment, name), name, positions);
}

Pages<std::byte> pages_out(const Tensor& tensor, OperandName name, int64_t positions) {
  const size_t alignment = alignment_of(form_of(tensor, name));
  return pages_of<std::byte>(tensor, checked_target(tensor, tensor.type, alignment, name), name, positions);
}

void widen_row(const RowOps& ops, const Pages<const std::byte>& pages, const std::byte* row, int64_t padded,
               float* to) {
  if (pages.form == KvForm::f16) {
    ops.from_f16(reinterpret_cast<const uint16_t*>(row), pages.width, to);
  } else if (pages.form == KvForm::q8_0) {
    ops.from_q8_0(row, pages.width, to);
  } else {
    std::memcpy(to, row, static_cast<size_t>(pages.width) * sizeof(float));
  }
  std::fill(to + pages.width, to + padded, 0.0f);
}

void check_ratio(int64_t ratio, const char* operation) {
  if (ratio < 1 || (kPagePositions % ratio != 0 && ratio % kPagePositions != 0))
    fail("{}: blocks of {} positions do not fit pages of {}", operation, ratio, kPagePositions);
}

void store_blocks(ThreadPool& pool, const RowOps& ops, const ActivationEncoders& encoders, const Tensor& x,
                  const BatchRows& rows, int64_t ratio, const Tensor& to) {
  const char* op = "store_blocks";
  check_ratio(ratio, op);
  const BatchView batch(rows, op);
  const int64_t entries = entries_per_page(ratio);
  const Pages<std::byte> pages = pages_out(to, {op, "the layer's blocks"}, entries);
  const FloatsIn from = floats_in(x, {op, "x"});
  if (pages.heads != 1) fail("{}: blocks have one head, not {}", op, pages.heads);
  require_shape(x, {pages.width, batch.count, 1, 1}, {op, "x"});
  share(pool, batch.count, pages.width, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t position = batch.position(r);
      if ((position + 1) % ratio != 0) continue;
      const int64_t page = batch.page(batch.sequence(r), position / kPagePositions, pages.count);
      store_row(ops, encoders, from, r, pages, page, position / ratio % entries);
    }
  });
}

BatchView::BatchView(const BatchRows& rows, const char* op) : operation(op) {
  positions = ints_in(rows.positions, {op, "positions"});
  sequences = ints_in(rows.sequences, {op, "sequences"});
  table = ints_in(rows.page_table, {op, "page_table"});
  count = rows.positions.shape[0];
  require_shape(rows.positions, {count, 1, 1, 1}, {op, "positions"});
  require_shape(rows.sequences, {count, 1, 1, 1}, {op, "sequences"});
  for (int64_t r = 0; r < count; ++r) {
    if (sequence(r) < 0 || sequence(r) >= table.rows) {
      fail("{}: row {} belongs to sequence {}, but the page table has {} sequences", op, r, sequence(r), table.rows);
    }
    if (position(r) < 0 || position(r) / kPagePositions >= table.columns) {
      fail("{}: row {} stands at position {}, but the page table has {} pages of {} positions for a sequence", op, r,
           position(r), table.columns, kPagePositions);
    }
  }
}

int64_t BatchView::page(int64_t sequence_index, int64_t block, int64_t pages) const {
  const int32_t page = table.row(sequence_index)[block];
  if (page < 0 || page >= pages) {
    fail("{}: the page table gives page {} to block {} of sequence {}, but there are {} pages", operation, page, block,
         sequence_index, pages);
  }
  return page;
}

void store_kv(ThreadPool& pool, const RowOps& ops, const ActivationEncoders& encoders, const Tensor& k, const Tensor& v,
              const BatchRows& rows, const KvLayer& to) {
  const char* op = "store_kv";
  const BatchView batch(rows, op);
  const Pages<std::byte> keys = pages_out(to.k, {op, "the layer's k"});
  const FloatsIn from_k = floats_in(k, {op, "k"});
  require_shape(k, {keys.width, keys.heads, batch.count, 1}, {op, "k"});
  Pages<std::byte> values;
  FloatsIn from_v;
  const bool apart = !v.empty();  // else the values come with the keys
  if (apart) {
    values = pages_out(to.v, {op, "the layer's v"});
    require_shape(to.v, {values.width, kPagePositions, keys.heads, keys.count}, {op, "the layer's v"});
    from_v = floats_in(v, {op, "v"});
    require_shape(v, {values.width, keys.heads, batch.count, 1}, {op, "v"});
  }
  share(pool, batch.count, keys.heads * (keys.width + values.width), [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t position = batch.position(r), block = position / kPagePositions;
      const int64_t page = batch.page(batch.sequence(r), block, keys.count);
      store_row(ops, encoders, from_k, r, keys, page, position % kPagePositions);
      if (apart) store_row(ops, encoders, from_v, r, values, page, position % kPagePositions);
    }
  });
}

}  // namespace moetier::cpu
