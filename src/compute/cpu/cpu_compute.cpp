#include "compute/cpu/cpu_compute.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "compute/cpu/attention.h"
#include "compute/cpu/blocks.h"
#include "compute/cpu/buffer.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/experts.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/kv.h"
#include "compute/cpu/matmul.h"
#include "compute/cpu/recurrent.h"
#include "compute/cpu/rope.h"
#include "compute/cpu/route.h"
#include "compute/cpu/streams.h"
#include "compute/op_profile.h"

namespace moetier {
namespace {

/// Calls copy(byte of the tensor, byte of the packed host array, bytes): at once if the tensor is packed, else row by
/// row.
template <typename Copy>
void for_packed_runs(const Tensor& tensor, std::byte* address, Copy&& copy) {
  const size_t row = row_bytes(tensor.type, tensor.shape[0]);
  const size_t rows = static_cast<size_t>(tensor.rows());
  if (tensor.row_stride == row) {
    copy(address, size_t{0}, rows * row);
    return;
  }
  for (size_t r = 0; r < rows; ++r) copy(address + r * tensor.row_stride, r * row, row);
}

/// Joins the operations, the kernels and the threads; each operation ends before the call returns.
class CpuCompute final : public Compute {
 public:
  CpuCompute(int threads, Isa isa, int64_t expert_chunk)
      : isa_(isa),
        pool_(threads),
        row_ops_(cpu::row_ops(isa)),
        matmul_(pool_, isa),
        experts_(pool_, isa, expert_chunk),
        attention_(pool_, row_ops_, cpu::attention_ops(isa)),
        blocks_(pool_, row_ops_, cpu::attention_ops(isa)),
        recurrent_(pool_, cpu::recurrent_ops(isa)),
        router_(pool_, row_ops_) {}

  std::string name() const override {
    return fmt::format("cpu ({}, {} thread{})", isa_name(isa_), pool_.size(), pool_.size() == 1 ? "" : "s");
  }

  std::unique_ptr<Buffer> allocate(size_t bytes) override { return cpu::allocate_buffer(bytes); }
  std::unique_ptr<Buffer> wrap(const void* host, size_t bytes) override { return cpu::wrap_buffer(host, bytes); }
  void upload(const Tensor& to, const void* from) override {
    std::byte* address = cpu::checked_target(to, to.type, 1, {"upload", "the tensor"});
    for_packed_runs(to, address, [&](std::byte* at, size_t offset, size_t bytes) {
      if (bytes > 0) std::memcpy(at, static_cast<const std::byte*>(from) + offset, bytes);
    });
  }
  void download(const Tensor& from, void* to) override {
    std::byte* address = cpu::checked_address(from, from.type, 1, {"download", "the tensor"});
    for_packed_runs(from, address, [&](const std::byte* at, size_t offset, size_t bytes) {
      if (bytes > 0) std::memcpy(static_cast<std::byte*>(to) + offset, at, bytes);
    });
  }

  void get_rows(const Tensor& table, const Tensor& ids, const Tensor& out) override {
    cpu::get_rows(pool_, table, ids, out);
  }
  void matmul(const Tensor& x, std::span<const MatmulTerm> terms) override { matmul_.run(x, terms); }
  void matmul_heads(const Tensor& x, const Tensor& weight, float scale, const Tensor& out) override {
    matmul_.run_heads(x, weight, scale, out);
  }
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override {
    cpu::rms_norm(pool_, row_ops_, x, weight, eps, out);
  }
  void add(const Tensor& a, const Tensor& b, const Tensor& out) override { cpu::add(pool_, row_ops_, a, b, out); }
  void clamp(float low, float high, const Tensor& x, const Tensor& out) override {
    cpu::clamp(pool_, low, high, x, out);
  }
  void soft_cap(float limit, const Tensor& x, const Tensor& out) override { cpu::soft_cap(pool_, limit, x, out); }
  void scale(float factor, const Tensor& x, const Tensor& out) override { cpu::scale(pool_, row_ops_, factor, x, out); }
  void glu(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    cpu::glu(pool_, row_ops_, activation, gate, up, out);
  }
  void sigmoid_gate(const Tensor& gate, const Tensor& x, const Tensor& out) override {
    cpu::sigmoid_gate(pool_, row_ops_, gate, x, out);
  }
  void rope_table(const RopeParams& params, const Tensor& positions, const Tensor& table) override {
    cpu::rope_table(pool_, params, positions, table, frequencies_);
  }
  void rope(const Tensor& x, const Tensor& table, RopePairs pairs, bool back) override {
    cpu::rope(pool_, row_ops_, x, table, pairs, back);
  }
  void temperature(const TemperatureParams& params, const Tensor& positions, const Tensor& x) override {
    cpu::temperature(pool_, row_ops_, params, positions, x);
  }
  void store_kv(const Tensor& k, const Tensor& v, const BatchRows& rows, const KvLayer& to) override {
    cpu::store_kv(pool_, row_ops_, activation_encoders(isa_), k, v, rows, to);
  }
  void attention(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
                 const Tensor& out) override {
    if (params.ratio > 0) return blocks_.attend(q, rows, kv, params, out);
    attention_.run(q, rows, kv, params, out);
  }

  void compress(const CompressParams& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    recurrent_.compress(in, rows, memory, out);
  }
  void store_blocks(const Tensor& x, const BatchRows& rows, int64_t ratio, const Tensor& to) override {
    cpu::store_blocks(pool_, row_ops_, activation_encoders(isa_), x, rows, ratio, to);
  }
  void choose_blocks(const BlockChoice& in, const BatchRows& rows, const Tensor& keys, const Tensor& picks) override {
    blocks_.choose(in, rows, keys, picks);
  }
  void stream_weights(const StreamParams& params, const Tensor& mixed, const Tensor& weights) override {
    cpu::stream_weights(pool_, params, mixed, weights);
  }
  void join_streams(const StreamParams& params, const Tensor& x, const Tensor& weights, const Tensor& out) override {
    cpu::join_streams(pool_, params, x, weights, out);
  }
  void spread_streams(const StreamParams& params, const Tensor& y, const Tensor& weights, const Tensor& x) override {
    cpu::spread_streams(pool_, params, y, weights, x);
  }

  void causal_conv(const Tensor& x, const ConvParams& params, const BatchRows& rows, const Tensor& memory,
                   const Tensor& out) override {
    recurrent_.conv(x, params, rows, memory, out);
  }
  void delta_rule(const DeltaInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    recurrent_.delta(in, rows, memory, out);
  }
  void scan(const ScanInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    recurrent_.scan(in, rows, memory, out);
  }

  void route(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
             const Tensor& weights) override {
    router_.run(logits, selection_bias, params, ids, weights);
  }
  void experts_begin(const ExpertFfn& ffn, const Tensor& x, const Tensor& weights, const Tensor& sums) override {
    experts_.begin(ffn, x, weights, sums);
  }
  void experts_run(std::span<const ExpertGroup> groups, ExpertStage stage) override { experts_.run(groups, stage); }
  void experts_finish(const Tensor& ids, const Tensor& out) override { experts_.finish(ids, out); }
  void profile(OpProfile* profile) override {
    pool_.meter(profile != nullptr ? &profile->pool() : nullptr);
    experts_.profile(profile);
  }

 private:
  Isa isa_;
  ThreadPool pool_;
  const cpu::RowOps& row_ops_;
  CpuMatmul matmul_;
  CpuExperts experts_;
  cpu::Attention attention_;
  cpu::BlockAttention blocks_;
  cpu::Recurrent recurrent_;
  cpu::Router router_;
  std::vector<double> frequencies_;
};

}  // namespace

Isa parse_isa(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Isa isa : {Isa::automatic, Isa::portable, Isa::avx2, Isa::avx512, Isa::neon}) {
    if (lower != isa_name(isa)) continue;
    if (isa_available(isa)) return isa;
    usage_error("this machine cannot run the {} kernels (they need {}); use auto or portable", lower, isa_needs(isa));
  }
  usage_error("'{}' is not an instruction set; use auto, portable, avx2, avx512 or neon", name);
}

std::unique_ptr<Compute> make_cpu_compute(const CpuOptions& options) {
  if (options.threads < 0)
    usage_error("{} threads are not possible; use 0 for as many as there are CPUs", options.threads);
  const int threads = options.threads == 0 ? default_threads() : options.threads;
  return std::make_unique<CpuCompute>(threads, resolve_isa(options.isa), options.expert_chunk);
}

}  // namespace moetier
