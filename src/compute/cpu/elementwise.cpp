#include "compute/cpu/elementwise.h"

#include <cstring>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/math64.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"
#include "quant/codec.h"

namespace moetier::cpu {
namespace {

/// Float operations that stand for one element of a copy, a norm, an activation.
constexpr int64_t kCopyCost = 1, kNormCost = 2, kActivationCost = 6;

/// Calls piece(row, first column, columns) for every row in pieces of up to 4096 columns: one long row is shared too.
template <typename Piece>
void share_pieces(ThreadPool& pool, int64_t rows, int64_t columns, int64_t element_cost, Piece&& piece) {
  constexpr int64_t kColumns = 4096;
  const int64_t per_row = ceil_div(columns, kColumns);
  share(pool, rows * per_row, std::min(columns, kColumns) * element_cost, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t column = i % per_row * kColumns;
      piece(i / per_row, column, std::min(kColumns, columns - column));
    }
  });
}

}  // namespace

void get_rows(ThreadPool& pool, const Tensor& table, const Tensor& ids, const Tensor& out) {
  const char* op = "get_rows";
  const bool whole_numbers = !table.empty() && table.type == TensorType::i32;
  if (!whole_numbers && !table.empty() && !type_info(table.type).computable) {
    fail("{}: the table is of type {}, which cannot be computed with", op, type_name(table.type));
  }
  const std::byte* rows = checked_address(table, table.type, 1, {op, "table"});
  const IntsIn wanted = ints_in(ids, {op, "ids"});
  IntsOut numbers;
  FloatsOut to;
  if (whole_numbers) {
    numbers = ints_out(out, {op, "out"});
  } else {
    to = floats_out(out, {op, "out"});
  }
  const int64_t count = ids.shape[0], table_rows = table.shape[1];
  require_shape(table, {table.shape[0], table_rows, 1, 1}, {op, "table"});
  require_shape(ids, {count, 1, 1, 1}, {op, "ids"});
  require_shape(out, {table.shape[0], count, 1, 1}, {op, "out"});
  for (int64_t r = 0; r < count; ++r) {
    if (at(wanted, r) < 0 || at(wanted, r) >= table_rows) {
      fail("{}: row {} asks for id {}, but the table has {} rows", op, r, at(wanted, r), table_rows);
    }
  }
  share(pool, count, table.shape[0] * kNormCost, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      if (whole_numbers) {
        std::memcpy(numbers.row(r), rows + static_cast<size_t>(at(wanted, r)) * table.row_stride,
                    static_cast<size_t>(numbers.columns) * sizeof(int32_t));
        continue;
      }
      decode(table.type, rows + static_cast<size_t>(at(wanted, r)) * table.row_stride, to.row(r), to.columns);
    }
  });
}

void rms_norm(ThreadPool& pool, const RowOps& ops, const Tensor& x, const Tensor& weight, float eps,
              const Tensor& out) {
  const char* op = "rms_norm";
  const FloatsIn from = floats_in(x, {op, "x"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(out, x.shape, {op, "out"});
  FloatsIn factors;
  if (!weight.empty()) {
    factors = floats_in(weight, {op, "weight"});
    require_shape(weight, {from.columns, weight.shape[1], 1, 1}, {op, "weight"});
    if (factors.rows < 1 || from.rows % factors.rows != 0)
      fail("{}: {} rows of weights cannot be taken in turn by {} rows", op, factors.rows, from.rows);
  }
  share(pool, from.rows, from.columns * kNormCost, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const float* row_factors = factors.rows > 0 ? factors.row(r % factors.rows) : nullptr;
      ops.rms_norm(from.row(r), row_factors, eps, from.columns, to.row(r));
    }
  });
}

void add(ThreadPool& pool, const RowOps& ops, const Tensor& a, const Tensor& b, const Tensor& out) {
  const char* op = "add";
  const FloatsIn first_term = floats_in(a, {op, "a"}), second_term = floats_in(b, {op, "b"});
  const FloatsOut to = floats_out(out, {op, "out"});
  const bool one_row = second_term.rows == 1;
  require_shape(b, one_row ? std::array<int64_t, 4>{a.shape[0], 1, 1, 1} : a.shape, {op, "b"});
  require_shape(out, a.shape, {op, "out"});
  share_pieces(pool, to.rows, to.columns, kCopyCost, [&](int64_t r, int64_t c, int64_t n) {
    ops.add(first_term.row(r) + c, second_term.row(one_row ? 0 : r) + c, n, to.row(r) + c);
  });
}

void clamp(ThreadPool& pool, float low, float high, const Tensor& x, const Tensor& out) {
  const char* op = "clamp";
  const FloatsIn from = floats_in(x, {op, "x"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(out, x.shape, {op, "out"});
  share_pieces(pool, to.rows, to.columns, kCopyCost, [&](int64_t r, int64_t c, int64_t n) {
    const float* in = from.row(r) + c;
    float* result = to.row(r) + c;
    for (int64_t i = 0; i < n; ++i) result[i] = num::max(low, num::min(high, in[i]));
  });
}

void soft_cap(ThreadPool& pool, float limit, const Tensor& x, const Tensor& out) {
  const char* op = "soft_cap";
  const FloatsIn from = floats_in(x, {op, "x"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(out, x.shape, {op, "out"});
  if (!(limit > 0)) fail("{}: a limit of {} is not possible", op, limit);
  const float inverse = 1.0f / limit;
  share_pieces(pool, to.rows, to.columns, kActivationCost, [&](int64_t r, int64_t c, int64_t n) {
    const float* in = from.row(r) + c;
    float* result = to.row(r) + c;
    for (int64_t i = 0; i < n; ++i) result[i] = num::soft_cap(limit, inverse, in[i]);
  });
}

void scale(ThreadPool& pool, const RowOps& ops, float factor, const Tensor& x, const Tensor& out) {
  const char* op = "scale";
  const FloatsIn from = floats_in(x, {op, "x"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(out, x.shape, {op, "out"});
  share_pieces(pool, to.rows, to.columns, kCopyCost,
               [&](int64_t r, int64_t c, int64_t n) { ops.scale(factor, from.row(r) + c, n, to.row(r) + c); });
}

void glu(ThreadPool& pool, const RowOps& ops, Activation activation, const Tensor& gate, const Tensor& up,
         const Tensor& out) {
  const char* op = "glu";
  const FloatsIn gates = floats_in(gate, {op, "gate"}), ups = floats_in(up, {op, "up"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(up, gate.shape, {op, "up"});
  require_shape(out, gate.shape, {op, "out"});
  const auto function = [&] {
    switch (activation) {
      case Activation::silu:
        return ops.silu_glu;
      case Activation::gelu:
        return ops.gelu_glu;
      case Activation::sigmoid:
        return ops.sigmoid_glu;
      case Activation::identity:
        return ops.multiply;
      case Activation::relu:
        return ops.relu_glu;
      case Activation::swiglu_oai:
        break;
    }
    fail("{}: swiglu_oai is an activation of experts only", op);
  }();
  share_pieces(pool, to.rows, to.columns, kActivationCost,
               [&](int64_t r, int64_t c, int64_t n) { function(gates.row(r) + c, ups.row(r) + c, n, to.row(r) + c); });
}

void temperature(ThreadPool& pool, const RowOps& ops, const TemperatureParams& params, const Tensor& positions,
                 const Tensor& x) {
  const char* op = "temperature";
  const IntsIn at_positions = ints_in(positions, {op, "positions"});
  const FloatsOut to = floats_out(x, {op, "x"});
  const int64_t heads = x.shape[1], count = x.shape[2];
  require_shape(positions, {count, 1, 1, 1}, {op, "positions"});
  require_shape(x, {x.shape[0], heads, count, 1}, {op, "x"});
  if (params.length < 1) fail("{}: steps of {} positions are not possible", op, params.length);
  share(pool, count, heads * x.shape[0] * kCopyCost, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t steps = (at(at_positions, r) + params.offset) / params.length;
      const auto factor = static_cast<float>(1.0 + params.scale * num::log64(1.0 + static_cast<double>(steps)));
      for (int64_t h = r * heads; h < (r + 1) * heads; ++h) ops.scale(factor, to.row(h), to.columns, to.row(h));
    }
  });
}

void sigmoid_gate(ThreadPool& pool, const RowOps& ops, const Tensor& gate, const Tensor& x, const Tensor& out) {
  const char* op = "sigmoid_gate";
  const FloatsIn gates = floats_in(gate, {op, "gate"}), from = floats_in(x, {op, "x"});
  const FloatsOut to = floats_out(out, {op, "out"});
  require_shape(gate, {1, x.shape[1], x.shape[2], x.shape[3]}, {op, "gate"});
  require_shape(out, x.shape, {op, "out"});
  share_pieces(pool, to.rows, to.columns, kCopyCost, [&](int64_t r, int64_t c, int64_t n) {
    ops.scale(num::sigmoid(gates.row(r)[0]), from.row(r) + c, n, to.row(r) + c);
  });
}

}  // namespace moetier::cpu
