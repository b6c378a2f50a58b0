#include "compute/op_profile.h"

#include <algorithm>
#include <utility>

namespace moetier {
namespace {

uint64_t bytes_of(const Tensor& tensor) {
  return tensor.empty() ? 0 : row_bytes(tensor.type, tensor.shape[0]) * static_cast<uint64_t>(tensor.rows());
}

class ProfiledCompute final : public Compute {
 public:
  ProfiledCompute(std::unique_ptr<Compute> inner, OpProfile& profile) : inner_(std::move(inner)), profile_(profile) {
    if (profile.timed()) inner_->profile(&profile);
  }
  ~ProfiledCompute() override { inner_->profile(nullptr); }

  std::string name() const override { return inner_->name(); }
  std::unique_ptr<Buffer> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  std::unique_ptr<Buffer> wrap(const void* host, size_t bytes) override { return inner_->wrap(host, bytes); }
  void upload(const Tensor& to, const void* from) override {
    timed({.name = "upload"}, 0, [&] { inner_->upload(to, from); });
  }
  void download(const Tensor& from, void* to) override {
    timed({.name = "download"}, 0, [&] { inner_->download(from, to); });
  }

  void get_rows(const Tensor& table, const Tensor& ids, const Tensor& out) override {
    const uint64_t bytes = row_bytes(table.type, table.shape[0]) * static_cast<uint64_t>(ids.shape[0]);
    timed({.name = "get_rows", .type = table.type}, bytes, [&] { inner_->get_rows(table, ids, out); });
  }
  void matmul(const Tensor& x, std::span<const MatmulTerm> terms) override {
    OpKey key{.name = "matmul", .terms = static_cast<int>(terms.size())};
    uint64_t bytes = 0;
    for (const MatmulTerm& term : terms) {
      key.type = term.weight.type;
      key.columns = term.weight.shape[0];
      key.rows += term.weight.rows();
      bytes += bytes_of(term.weight);
    }
    timed(key, bytes, [&] { inner_->matmul(x, terms); });
  }
  void matmul_heads(const Tensor& x, const Tensor& weight, float scale, const Tensor& out) override {
    const OpKey key{.name = "matmul_heads",
                    .type = weight.type,
                    .columns = weight.shape[0],
                    .rows = weight.rows(),
                    .terms = static_cast<int>(weight.shape[2])};
    timed(key, bytes_of(weight), [&] { inner_->matmul_heads(x, weight, scale, out); });
  }
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override {
    timed({.name = "rms_norm"}, bytes_of(weight), [&] { inner_->rms_norm(x, weight, eps, out); });
  }
  void add(const Tensor& a, const Tensor& b, const Tensor& out) override {
    timed({.name = "add"}, 0, [&] { inner_->add(a, b, out); });
  }
  void scale(float factor, const Tensor& x, const Tensor& out) override {
    timed({.name = "scale"}, 0, [&] { inner_->scale(factor, x, out); });
  }
  void clamp(float low, float high, const Tensor& x, const Tensor& out) override {
    timed({.name = "clamp"}, 0, [&] { inner_->clamp(low, high, x, out); });
  }
  void soft_cap(float limit, const Tensor& x, const Tensor& out) override {
    timed({.name = "soft_cap"}, 0, [&] { inner_->soft_cap(limit, x, out); });
  }
  void glu(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    timed({.name = "glu"}, 0, [&] { inner_->glu(activation, gate, up, out); });
  }
  void sigmoid_gate(const Tensor& gate, const Tensor& x, const Tensor& out) override {
    timed({.name = "sigmoid_gate"}, 0, [&] { inner_->sigmoid_gate(gate, x, out); });
  }
  void rope_table(const RopeParams& params, const Tensor& positions, const Tensor& table) override {
    timed({.name = "rope_table"}, 0, [&] { inner_->rope_table(params, positions, table); });
  }
  void rope(const Tensor& x, const Tensor& table, RopePairs pairs, bool back) override {
    timed({.name = "rope"}, 0, [&] { inner_->rope(x, table, pairs, back); });
  }
  void temperature(const TemperatureParams& params, const Tensor& positions, const Tensor& x) override {
    timed({.name = "temperature"}, 0, [&] { inner_->temperature(params, positions, x); });
  }
  void store_kv(const Tensor& k, const Tensor& v, const BatchRows& rows, const KvLayer& to) override {
    timed({.name = "store_kv"}, 0, [&] { inner_->store_kv(k, v, rows, to); });
  }
  void attention(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
                 const Tensor& out) override {
    timed({.name = "attention"}, 0, [&] { inner_->attention(q, rows, kv, params, out); });
  }
  void compress(const CompressParams& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    timed({.name = "compress"}, bytes_of(in.bias), [&] { inner_->compress(in, rows, memory, out); });
  }
  void store_blocks(const Tensor& x, const BatchRows& rows, int64_t ratio, const Tensor& to) override {
    timed({.name = "store_blocks"}, 0, [&] { inner_->store_blocks(x, rows, ratio, to); });
  }
  void choose_blocks(const BlockChoice& in, const BatchRows& rows, const Tensor& keys, const Tensor& picks) override {
    timed({.name = "choose_blocks"}, 0, [&] { inner_->choose_blocks(in, rows, keys, picks); });
  }
  void stream_weights(const StreamParams& params, const Tensor& mixed, const Tensor& weights) override {
    timed({.name = "stream_weights"}, 0, [&] { inner_->stream_weights(params, mixed, weights); });
  }
  void join_streams(const StreamParams& params, const Tensor& x, const Tensor& weights, const Tensor& out) override {
    timed({.name = "join_streams"}, 0, [&] { inner_->join_streams(params, x, weights, out); });
  }
  void spread_streams(const StreamParams& params, const Tensor& y, const Tensor& weights, const Tensor& x) override {
    timed({.name = "spread_streams"}, 0, [&] { inner_->spread_streams(params, y, weights, x); });
  }
  void causal_conv(const Tensor& x, const ConvParams& params, const BatchRows& rows, const Tensor& memory,
                   const Tensor& out) override {
    timed({.name = "causal_conv"}, bytes_of(params.weight), [&] { inner_->causal_conv(x, params, rows, memory, out); });
  }
  void delta_rule(const DeltaInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    timed({.name = "delta_rule"}, 0, [&] { inner_->delta_rule(in, rows, memory, out); });
  }
  void scan(const ScanInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) override {
    timed({.name = "scan"}, 0, [&] { inner_->scan(in, rows, memory, out); });
  }
  void route(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
             const Tensor& weights) override {
    timed({.name = "route"}, 0, [&] { inner_->route(logits, selection_bias, params, ids, weights); });
  }
  void experts_begin(const ExpertFfn& ffn, const Tensor& x, const Tensor& weights, const Tensor& sums) override {
    const auto width = static_cast<uint64_t>(ffn.width);
    first_bytes_ =
        (row_bytes(ffn.gate_type, ffn.columns) + (ffn.gated ? row_bytes(ffn.up_type, ffn.columns) : 0)) * width;
    last_bytes_ = row_bytes(ffn.down_type, ffn.width) * static_cast<uint64_t>(ffn.columns);
    timed({.name = "experts begin"}, 0, [&] { inner_->experts_begin(ffn, x, weights, sums); });
  }
  void experts_run(std::span<const ExpertGroup> groups, ExpertStage stage) override {
    const uint64_t each =
        (stage != ExpertStage::last ? first_bytes_ : 0) + (stage != ExpertStage::first ? last_bytes_ : 0);
    profile_.count(each * groups.size());  // the lines of the parts tell theirs
    timed({.name = "experts, other"}, 0, [&] { inner_->experts_run(groups, stage); });
  }
  void experts_finish(const Tensor& ids, const Tensor& out) override {
    timed({.name = "experts finish"}, 0, [&] { inner_->experts_finish(ids, out); });
  }

 private:
  template <typename Call>
  void timed(const OpKey& key, uint64_t bytes, Call call) {
    profile_.count(bytes);
    const OpTimer timer(profile_.timed() ? &profile_ : nullptr, key, bytes);
    call();
  }

  std::unique_ptr<Compute> inner_;
  OpProfile& profile_;
  uint64_t first_bytes_ = 0, last_bytes_ = 0;
};

}  // namespace

void OpProfile::begin_batch(int64_t rows) {
  phase_ = rows == 1 ? Phase::single : Phase::batch;
  lines_[static_cast<size_t>(phase_)].rows += static_cast<uint64_t>(rows);
  rounds_before_ = pool_.rounds;
}

void OpProfile::end_batch(double seconds) {
  Lines& lines = lines_[static_cast<size_t>(phase_)];
  lines.batch_seconds += seconds;
  lines.rounds += pool_.rounds - rounds_before_;
}

void OpProfile::add(const OpKey& key, double seconds, double wait_seconds, uint64_t bytes) {
  added_seconds_ += seconds;
  added_waits_ += wait_seconds;
  std::vector<Line>& lines = lines_[static_cast<size_t>(phase_)].lines;
  auto line = std::ranges::find(lines, key, &Line::key);
  if (line == lines.end()) line = lines.insert(line, {.key = key});
  ++line->calls;
  line->seconds += seconds;
  line->wait_seconds += wait_seconds;
  line->bytes += bytes;
}

void OpProfile::reset() {
  for (Lines& lines : lines_) lines = {};
}

void OpTimer::finish() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double part_waits = profile_->added_waits() - waits_, parts = profile_->added_seconds() - added_ + part_waits;
  const double wait = profile_->pool().wait_seconds - pool_waits_ - part_waits;
  profile_->add(key_, std::max(0.0, seconds - parts - wait), std::max(0.0, wait), bytes_);
}

std::unique_ptr<Compute> make_profiled_compute(std::unique_ptr<Compute> inner, OpProfile& profile) {
  return std::make_unique<ProfiledCompute>(std::move(inner), profile);
}

}  // namespace moetier
