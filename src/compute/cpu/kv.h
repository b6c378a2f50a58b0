// Keys and values in their pages: where a position lies, and putting rows there.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/activation_codes.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// How a KV cache keeps its elements.
enum class KvForm : uint8_t { f32, f16, q8_0 };

/// One of a layer's page tensors [width, positions, kv heads, pages], checked: 64 positions in a page, or of keys of
/// blocks as many as end there. Byte is const for reading.
template <typename Byte>
struct Pages {
  Byte* base = nullptr;
  int64_t width = 0, heads = 0, count = 0, positions = kPagePositions;
  size_t stride = 0;  ///< bytes from position to position
  KvForm form = KvForm::f32;

  /// Position 0 of a head's rows in a page; the page must have been checked.
  Byte* rows(int64_t page, int64_t head) const {
    return base + static_cast<size_t>((page * heads + head) * positions) * stride;
  }
};

Pages<const std::byte> pages_in(const Tensor& tensor, OperandName name, int64_t positions = kPagePositions);
Pages<std::byte> pages_out(const Tensor& tensor, OperandName name, int64_t positions = kPagePositions);

/// Widens a stored row to f32, with zeros behind it up to `padded` elements.
void widen_row(const RowOps& ops, const Pages<const std::byte>& pages, const std::byte* row, int64_t padded, float* to);

/// Fails unless blocks of so many positions fit pages: a divisor of kPagePositions, or a multiple.
void check_ratio(int64_t ratio, const char* operation);

/// A batch's positions, sequences and page table, checked: every row has a position >= 0 inside its sequence's column.
struct BatchView {
  BatchView(const BatchRows& rows, const char* operation);

  int32_t position(int64_t row) const { return at(positions, row); }
  int32_t sequence(int64_t row) const { return at(sequences, row); }
  /// The page of a block of a sequence, checked against `pages`; an error if the table names none.
  int64_t page(int64_t sequence, int64_t block, int64_t pages) const;

  int64_t count = 0;
  IntsIn positions, sequences, table;
  const char* operation = nullptr;
};

/// Compute::store_blocks.
void store_blocks(ThreadPool& pool, const RowOps& ops, const ActivationEncoders& encoders, const Tensor& x,
                  const BatchRows& rows, int64_t ratio, const Tensor& to);

/// Compute::store_kv.
void store_kv(ThreadPool& pool, const RowOps& ops, const ActivationEncoders& encoders, const Tensor& k, const Tensor& v,
              const BatchRows& rows, const KvLayer& to);

}  // namespace moetier::cpu
