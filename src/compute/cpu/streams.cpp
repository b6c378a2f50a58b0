#include "compute/cpu/streams.h"

#include <algorithm>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

constexpr int64_t kMaxStreams = 8;
/// Columns that stay in the nearest cache while all streams of them are mixed.
constexpr int64_t kColumns = 512;

void check(const StreamParams& params, const char* op) {
  if (params.streams < 1 || params.streams > kMaxStreams)
    fail("{}: {} streams are not between 1 and {}", op, params.streams, kMaxStreams);
}

/// A matrix of streams, [to, from]: the column of `from` is contiguous.
struct Square {
  float* at;
  int64_t n;
  float& operator()(int64_t to, int64_t from) const { return at[from * n + to]; }

  void softmax_columns(float eps) const {
    for (int64_t from = 0; from < n; ++from) {
      float m = (*this)(0, from), sum = 0.0f;
      for (int64_t to = 1; to < n; ++to) m = num::max((*this)(to, from), m);
      for (int64_t to = 0; to < n; ++to) {
        (*this)(to, from) = num::exp((*this)(to, from) - m);
        sum = sum + (*this)(to, from);
      }
      for (int64_t to = 0; to < n; ++to) (*this)(to, from) = (*this)(to, from) / sum + eps;
    }
  }
  /// What goes to each stream, over all that it comes from, sums to nearly one; and the other way round.
  void balance_to(float eps) const {
    for (int64_t to = 0; to < n; ++to) {
      float sum = 0.0f;
      for (int64_t from = 0; from < n; ++from) sum = sum + (*this)(to, from);
      for (int64_t from = 0; from < n; ++from) (*this)(to, from) = (*this)(to, from) / (sum + eps);
    }
  }
  void balance_from(float eps) const {
    for (int64_t from = 0; from < n; ++from) {
      float sum = 0.0f;
      for (int64_t to = 0; to < n; ++to) sum = sum + (*this)(to, from);
      for (int64_t to = 0; to < n; ++to) (*this)(to, from) = (*this)(to, from) / (sum + eps);
    }
  }
};

void weigh_row(const StreamParams& params, const float* scale, const float* base, bool all, const float* mixed,
               float* out) {
  const int64_t n = params.streams;
  for (int64_t s = 0; s < n; ++s) out[s] = num::sigmoid(mixed[s] * scale[0] + base[s]) + params.eps;
  if (!all) return;
  for (int64_t s = n; s < 2 * n; ++s) out[s] = 2.0f * num::sigmoid(mixed[s] * scale[1] + base[s]);
  for (int64_t i = 2 * n; i < (2 + n) * n; ++i) out[i] = mixed[i] * scale[2] + base[i];
  const Square square{out + 2 * n, n};
  square.softmax_columns(params.eps);
  square.balance_to(params.eps);
  for (int i = 1; i < params.iterations; ++i) {
    square.balance_from(params.eps);
    square.balance_to(params.eps);
  }
}

/// Calls piece(row, first column, columns).
template <typename Piece>
void share_columns(ThreadPool& pool, int64_t rows, int64_t width, int64_t cost, Piece piece) {
  const int64_t per_row = ceil_div(width, kColumns);
  share(pool, rows * per_row, std::min(width, kColumns) * cost, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t c = i % per_row * kColumns;
      piece(i / per_row, c, std::min(kColumns, width - c));
    }
  });
}

}  // namespace

void stream_weights(ThreadPool& pool, const StreamParams& params, const Tensor& mixed, const Tensor& weights) {
  const char* op = "stream_weights";
  check(params, op);
  const FloatsIn from = floats_in(mixed, {op, "mixed"});
  const FloatsOut to = floats_out(weights, {op, "weights"});
  const int64_t n = params.streams, count = mixed.shape[1];
  const bool all = mixed.shape[0] != n;
  const int64_t numbers = all ? n * (2 + n) : n;
  require_shape(mixed, {numbers, count, 1, 1}, {op, "mixed"});
  require_shape(weights, mixed.shape, {op, "weights"});
  require_shape(params.scale, {all ? 3 : 1, 1, 1, 1}, {op, "scale"});
  require_shape(params.base, {numbers, 1, 1, 1}, {op, "base"});
  const float *scale = floats_in(params.scale, {op, "scale"}).row(0),
              *base = floats_in(params.base, {op, "base"}).row(0);
  share(pool, count, numbers * (20 + 4 * std::max(params.iterations, 1)), [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) weigh_row(params, scale, base, all, from.row(r), to.row(r));
  });
}

void join_streams(ThreadPool& pool, const StreamParams& params, const Tensor& x, const Tensor& weights,
                  const Tensor& out) {
  const char* op = "join_streams";
  check(params, op);
  const FloatsIn from = floats_in(x, {op, "x"}), factors = floats_in(weights, {op, "weights"});
  const FloatsOut to = floats_out(out, {op, "out"});
  const int64_t n = params.streams, width = out.shape[0], count = out.shape[1];
  require_shape(out, {width, count, 1, 1}, {op, "out"});
  require_shape(x, {n * width, count, 1, 1}, {op, "x"});
  require_shape(weights, {std::max(weights.shape[0], n), count, 1, 1}, {op, "weights"});
  share_columns(pool, count, width, 2 * n, [&](int64_t r, int64_t c, int64_t columns) {
    const float *in = from.row(r) + c, *factor = factors.row(r);
    float* sum = to.row(r) + c;
    for (int64_t i = 0; i < columns; ++i) sum[i] = factor[0] * in[i];
    for (int64_t s = 1; s < n; ++s) {
      for (int64_t i = 0; i < columns; ++i) sum[i] = sum[i] + factor[s] * in[s * width + i];
    }
  });
}

void spread_streams(ThreadPool& pool, const StreamParams& params, const Tensor& y, const Tensor& weights,
                    const Tensor& x) {
  const char* op = "spread_streams";
  check(params, op);
  const FloatsIn result = floats_in(y, {op, "y"}), factors = floats_in(weights, {op, "weights"});
  const FloatsOut to = floats_out(x, {op, "x"});
  const int64_t n = params.streams, width = y.shape[0], count = y.shape[1];
  require_shape(y, {width, count, 1, 1}, {op, "y"});
  require_shape(x, {n * width, count, 1, 1}, {op, "x"});
  require_shape(weights, {n * (2 + n), count, 1, 1}, {op, "weights"});
  share_columns(pool, count, width, 2 * n * (n + 1), [&](int64_t r, int64_t c, int64_t columns) {
    float mixed[kMaxStreams][kColumns];
    const float *own = result.row(r) + c, *factor = factors.row(r);
    float* streams = to.row(r) + c;
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t i = 0; i < columns; ++i) mixed[t][i] = factor[n + t] * own[i];
      for (int64_t s = 0; s < n; ++s) {
        const float share_of = factor[2 * n + t + s * n];
        for (int64_t i = 0; i < columns; ++i) mixed[t][i] = mixed[t][i] + share_of * streams[s * width + i];
      }
    }
    for (int64_t t = 0; t < n; ++t) std::copy_n(mixed[t], columns, streams + t * width);
  });
}

}  // namespace moetier::cpu
