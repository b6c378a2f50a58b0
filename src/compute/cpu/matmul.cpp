#include "compute/cpu/matmul.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "compute/cpu/activation_rows.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"

namespace moetier {
namespace {

using cpu::ActivationKinds;
using cpu::ActivationRows;
using cpu::ceil_div;
using cpu::FloatsIn;
using cpu::FloatsOut;

/// A chunk is some weight rows times some activation rows: enough work to be worth handing out (some microseconds),
/// little enough to balance the threads and to stay in the second-level cache.
constexpr size_t kChunkWeightBytes = 64 * 1024;
constexpr int64_t kChunkMaxRows = 256;
constexpr int64_t kPanelRows = 16;  ///< that the widest kernels take at once
constexpr int64_t kChunkActivations = 2 * kDotTile;
constexpr int64_t kChunksPerThread = 4;

/// One term, or one head's matrix, checked, and how it is cut into chunks.
struct Job {
  WeightMatrix weights;
  FloatsOut out;
  const float* bias;
  float scale;
  DotFn dot;
  ActivationKind kind;
  int64_t first_row, row_step;  ///< its row t is row first_row + t * row_step of x and of out
  int64_t rows_per_chunk, activation_blocks;
  int64_t first_chunk, chunks;
};

WeightMatrix weight_matrix(const Tensor& weight, int64_t columns) {
  if (!has_dot(weight.type)) fail("matmul: weights of type {} cannot be computed", type_name(weight.type));
  if (weight.layout != Layout::file) fail("matmul: a weight is in a layout that the CPU does not know");
  if (weight.shape[0] != columns) {
    fail("matmul: a weight with {} columns cannot be applied to activations with {}", weight.shape[0], columns);
  }
  if (columns % type_info(weight.type).block_length != 0) {
    fail("matmul: {} columns are not whole blocks of {}", columns, type_name(weight.type));
  }
  const size_t alignment =
      activation_kind(weight.type) == ActivationKind::floats ? type_info(weight.type).block_bytes : 1;
  const std::byte* data = cpu::checked_address(weight, weight.type, alignment, {"matmul", "a weight"});
  return {data, weight.row_stride, columns, weight.rows()};
}

Job make_job(const MatmulTerm& term, const FloatsIn& x, const DotTable& dots) {
  Job job{};
  job.weights = weight_matrix(term.weight, x.columns);
  job.out = cpu::floats_out(term.out, {"matmul", "an output"});
  if (job.out.columns != job.weights.rows || job.out.rows != x.rows) {
    fail("matmul: an output of {} by {} does not fit {} weight rows and {} activation rows", job.out.columns,
         job.out.rows, job.weights.rows, x.rows);
  }
  if (!term.bias.empty()) {
    const FloatsIn bias = cpu::floats_in(term.bias, {"matmul", "a bias"});
    if (bias.columns != job.weights.rows || bias.rows != 1) {
      fail("matmul: a bias of {} elements does not fit {} weight rows", bias.columns * bias.rows, job.weights.rows);
    }
    job.bias = bias.row(0);
  }
  job.scale = term.scale;
  job.dot = dots.of(term.weight.type);
  job.kind = activation_kind(term.weight.type);
  job.row_step = 1;
  return job;
}

/// The jobs of matmul_heads(), one for each head.
void make_head_jobs(const FloatsIn& x, const Tensor& weight, float scale, const Tensor& out, const DotTable& dots,
                    std::vector<Job>& jobs) {
  const WeightMatrix all = weight_matrix(weight, x.columns);
  const int64_t rows = weight.shape[1], heads = weight.shape[2];
  const FloatsOut to = cpu::floats_out(out, {"matmul_heads", "out"});
  if (weight.shape[3] != 1 || heads < 1 || x.rows % heads != 0)
    fail("matmul_heads: {} activation rows cannot be shared by {} heads", x.rows, heads);
  cpu::require_shape(out, {rows, heads, x.rows / heads, 1}, {"matmul_heads", "out"});
  for (int64_t h = 0; h < heads; ++h) {
    Job job{};
    job.weights = all;
    job.weights.data += static_cast<size_t>(h * rows) * all.row_bytes;
    job.weights.rows = rows;
    job.out = to;
    job.scale = scale;
    job.dot = dots.of(weight.type);
    job.kind = activation_kind(weight.type);
    job.first_row = h;
    job.row_step = heads;
    jobs.push_back(job);
  }
}

}  // namespace

struct CpuMatmul::Impl {
  Impl(ThreadPool& p, Isa isa) : pool(p), dots(dot_table(isa)), activations(p, isa) {}

  /// Cuts every job; returns the number of chunks. Chunk order: terms, then weight rows, then activation rows, so that
  /// weights come from memory once.
  int64_t plan(int64_t activation_rows) {
    int64_t all_rows = 0, chunks = 0;
    for (const Job& job : jobs) all_rows += job.weights.rows;
    for (Job& job : jobs) {
      const auto by_bytes = static_cast<int64_t>(kChunkWeightBytes / std::max<size_t>(job.weights.row_bytes, 1));
      const int64_t by_balance = all_rows / (kChunksPerThread * pool.size());
      const int64_t rows = std::clamp<int64_t>(std::min(by_bytes, by_balance), 8, kChunkMaxRows);
      job.rows_per_chunk = rows < kPanelRows ? 8 : rows / kPanelRows * kPanelRows;
      job.activation_blocks = ceil_div(activation_rows, kChunkActivations);
      job.first_chunk = chunks;
      job.chunks = ceil_div(job.weights.rows, job.rows_per_chunk) * job.activation_blocks;
      chunks += job.chunks;
    }
    for (size_t i = 1; i < jobs.size(); ++i) jobs[i - 1].weights.then = jobs[i].weights.data;
    return chunks;
  }

  void run_chunk(int64_t chunk, int64_t activation_rows) const {
    const auto job = std::prev(std::ranges::upper_bound(jobs, chunk, {}, &Job::first_chunk));
    const int64_t within = chunk - job->first_chunk;
    const int64_t first = within / job->activation_blocks * job->rows_per_chunk;
    const int64_t last = std::min(first + job->rows_per_chunk, job->weights.rows);
    const int64_t begin = within % job->activation_blocks * kChunkActivations;
    const int64_t end = std::min(begin + kChunkActivations, activation_rows);
    for (int64_t t = begin; t < end; t += kDotTile) run_tile(*job, first, last, t, std::min(t + kDotTile, end));
  }

  /// Weight rows [first, last) times activation rows [begin, end), at most a tile.
  void run_tile(const Job& job, int64_t first, int64_t last, int64_t begin, int64_t end) const {
    const std::byte* x[kDotTile] = {};
    float* out[kDotTile] = {};
    const auto n = static_cast<int>(end - begin);
    for (int t = 0; t < n; ++t) {
      const int64_t row = job.first_row + (begin + t) * job.row_step;
      x[t] = activations.row(job.kind, row);
      out[t] = job.out.row(row) + first;
    }
    job.dot(job.weights, first, last, x, out, n);
    if (job.scale != 1.0f) {
      for (int t = 0; t < n; ++t) cpu::scale_row(job.scale, out[t], last - first);
    }
    if (job.bias == nullptr) return;
    for (int t = 0; t < n; ++t) {
      for (int64_t r = first; r < last; ++r) out[t][r - first] = out[t][r - first] + job.bias[r];
    }
  }

  ThreadPool& pool;
  const DotTable& dots;
  ActivationRows activations;
  std::vector<Job> jobs;
};

CpuMatmul::CpuMatmul(ThreadPool& pool, Isa isa) : impl_(std::make_unique<Impl>(pool, isa)) {}
CpuMatmul::~CpuMatmul() = default;

void CpuMatmul::run(const Tensor& x, std::span<const MatmulTerm> terms) {
  Impl& impl = *impl_;
  const FloatsIn rows = cpu::floats_in(x, {"matmul", "x"});
  ActivationKinds kinds;
  impl.jobs.clear();
  for (const MatmulTerm& term : terms) {
    impl.jobs.push_back(make_job(term, rows, impl.dots));
    kinds.add(impl.jobs.back().kind);
  }
  if (rows.rows == 0) return;
  impl.activations.encode(rows, kinds);
  const int64_t chunks = impl.plan(rows.rows);
  impl.pool.run(chunks, [&](int64_t chunk, int) { impl.run_chunk(chunk, rows.rows); });
}

void CpuMatmul::run_heads(const Tensor& x, const Tensor& weight, float scale, const Tensor& out) {
  Impl& impl = *impl_;
  const FloatsIn rows = cpu::floats_in(x, {"matmul_heads", "x"});
  impl.jobs.clear();
  make_head_jobs(rows, weight, scale, out, impl.dots, impl.jobs);
  cpu::require_shape(x, {rows.columns, weight.shape[2], out.shape[2], 1}, {"matmul_heads", "x"});
  if (rows.rows == 0) return;
  ActivationKinds kinds;
  kinds.add(impl.jobs.front().kind);
  impl.activations.encode(rows, kinds);
  const int64_t n = out.shape[2], chunks = impl.plan(n);
  impl.pool.run(chunks, [&](int64_t chunk, int) { impl.run_chunk(chunk, n); });
}

}  // namespace moetier
