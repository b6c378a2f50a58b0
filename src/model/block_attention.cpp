#include "model/block_attention.h"

#include <array>
#include <cmath>

namespace moetier {
namespace {

/// What makes keys of blocks of one width.
struct Compressor {
  Linear value, gate;
  Tensor bias, norm;
  int64_t width = 0, ratio = 0;

  bool overlapping() const { return ratio == kShortBlock; }
  int64_t channels() const { return overlapping() ? 2 * width : width; }
};

Compressor bind_compressor(WeightBinder& binder, const HParams& h, int layer, const std::string& name, int64_t width,
                           int64_t ratio) {
  Compressor c;
  c.width = width;
  c.ratio = ratio;
  c.value = bind_linear(binder, layer, name + "_kv", h.width, c.channels());
  c.gate = bind_linear(binder, layer, name + "_gate", h.width, c.channels());
  c.bias = binder.floats(layer_tensor(layer, name + "_ape.weight"), c.channels(), ratio);
  c.norm = binder.vector(layer_tensor(layer, name + "_norm.weight"), width);
  return c;
}

class BlockAttentionMixer final : public Mixer {
 public:
  BlockAttentionMixer(WeightBinder& binder, const HParams& h, int layer, const BlockAttentionShape& shape)
      : shape_(shape),
        heads_(h.heads),
        length_(h.key_length),
        rotated_(h.rope.dims),
        ratio_(shape.ratio(layer)),
        rms_eps_(h.rms_eps),
        pairs_(h.rope_pairs) {
    const auto vector = [&](std::string_view name, int64_t n) { return binder.vector(layer_tensor(layer, name), n); };
    streams_ = bind_streams(binder, h, layer_tensor(layer, "hc_attn"), true, shape.streams);
    norm_ = vector("attn_norm.weight", h.width);
    params_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(length_)));
    params_.window = h.window(layer);
    params_.ratio = ratio_;
    params_.sinks = vector("attn_sinks.weight", heads_);
    query_down_ = bind_linear(binder, layer, "attn_q_a", h.width, shape.query_rank);
    query_norm_ = vector("attn_q_a_norm.weight", shape.query_rank);
    query_ = bind_linear(binder, layer, "attn_q_b", shape.query_rank, heads_ * length_);
    key_ = bind_linear(binder, layer, "attn_kv", h.width, length_);
    key_norm_ = vector("attn_kv_a_norm.weight", length_);
    const std::string narrow = layer_tensor(layer, "attn_output_a.weight");
    const int64_t part = heads_ * length_ / shape.groups;
    narrow_ = binder.matrix(narrow, part, shape.output_rank * shape.groups)
                  .reshaped({part, shape.output_rank, shape.groups, 1});
    narrow_scale_ = binder.scale(narrow);
    output_ = bind_linear(binder, layer, "attn_output_b", shape.groups * shape.output_rank, h.width);
    if (ratio_ > 0) keys_ = bind_compressor(binder, h, layer, "attn_compressor", length_, ratio_);
    if (ratio_ != kShortBlock) return;
    index_ = bind_compressor(binder, h, layer, "indexer_compressor", shape.index_length, ratio_);
    index_weights_ = bind_linear(binder, layer, "indexer.proj", h.width, shape.index_heads);
    index_query_ =
        bind_linear(binder, layer, "indexer.attn_q_b", shape.query_rank, shape.index_heads * shape.index_length);
  }

  void plan(ScratchPlan& plan) const override {
    streams_.plan(plan);
    plan.need(ScratchPart::normed, norm_.shape[0]);
    plan.need(ScratchPart::query, heads_ * length_);
    plan.need(ScratchPart::attended, heads_ * length_);
    plan.need(ScratchPart::latent, length_);
    plan.need(ScratchPart::latent_query, shape_.query_rank);
    plan.need(ScratchPart::grouped, shape_.groups * shape_.output_rank);
    plan.need(table(), rotated_);
    if (ratio_ == 0) return;
    plan.need(block_table(), rotated_);
    plan.need(ScratchPart::key, length_);
    for (const ScratchPart part : {ScratchPart::block_values, ScratchPart::block_gates})
      plan.need(part, keys_.channels());
    if (ratio_ != kShortBlock) return;
    for (const ScratchPart part : {ScratchPart::block_values, ScratchPart::block_gates})
      plan.need(part, index_.channels());
    plan.need(ScratchPart::key, shape_.index_length);
    plan.need(ScratchPart::index_query, shape_.index_heads * shape_.index_length);
    plan.need(ScratchPart::step, shape_.index_heads);
    plan.need(ScratchPart::block_picks, shape_.top_k);
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1];
    const Tensor weights = pass.scratch.get(ScratchPart::stream_weights, streams_.numbers(), n);
    const Tensor normed = pass.scratch.get(ScratchPart::normed, norm_.shape[0], n);
    streams_.join(pass, x, weights, normed);
    compute.rms_norm(normed, norm_, rms_eps_, normed);

    const Tensor q = pass.scratch.get(ScratchPart::query, heads_ * length_, n);
    const Tensor small = pass.scratch.get(ScratchPart::latent_query, shape_.query_rank, n);
    const Tensor key = pass.scratch.get(ScratchPart::latent, length_, n);
    const std::array<MatmulTerm, 2> terms{query_down_.to(small), key_.to(key)};
    compute.matmul(normed, terms);
    compute.rms_norm(small, query_norm_, rms_eps_, small);
    apply(compute, query_, small, q);
    const Tensor q_heads = q.reshaped({length_, heads_, n, 1}), one_key = key.reshaped({length_, 1, n, 1});
    compute.rms_norm(q_heads, {}, rms_eps_, q_heads);
    compute.rms_norm(key, key_norm_, rms_eps_, key);
    const Tensor angles = rows_of(pass, table(), n);
    rotate(compute, q_heads, angles);
    rotate(compute, one_key, angles);
    const KvLayer& kv = pass.kv[static_cast<size_t>(layer)];
    compute.store_kv(one_key, {}, pass.rows, kv);

    AttentionParams params = params_;
    if (ratio_ > 0) store_keys(pass, layer, normed);
    if (ratio_ == kShortBlock) params.picks = choose(pass, kv, normed, small);
    const Tensor attended = pass.scratch.get(ScratchPart::attended, heads_ * length_, n);
    const Tensor attended_heads = attended.reshaped({length_, heads_, n, 1});
    compute.attention(q_heads, pass.rows, kv, params, attended_heads);
    rotate(compute, attended_heads, angles, true);  // values were rotated as keys
    const Tensor grouped = pass.scratch.get(ScratchPart::grouped, shape_.groups * shape_.output_rank, n);
    compute.matmul_heads(attended.reshaped({heads_ * length_ / shape_.groups, shape_.groups, n, 1}), narrow_,
                         narrow_scale_, grouped.reshaped({shape_.output_rank, shape_.groups, n, 1}));
    apply(compute, output_, grouped, normed);
    compute.spread_streams(streams_.params, normed, weights, x);
  }

 private:
  ScratchPart table() const { return ratio_ == 0 ? ScratchPart::rope : ScratchPart::windowed_rope; }
  ScratchPart block_table() const {
    return ratio_ == kShortBlock ? ScratchPart::block_rope : ScratchPart::long_block_rope;
  }
  Tensor rows_of(const Pass& pass, ScratchPart part, int64_t n) const {
    return pass.scratch.get(part, rotated_, pass.first_row + n).slice_rows(pass.first_row, n);
  }
  /// The last elements of each head.
  void rotate(Compute& compute, const Tensor& heads, const Tensor& angles, bool back = false) const {
    compute.rope(heads.slice_columns(heads.shape[0] - rotated_, rotated_), angles, pairs_, back);
  }

  /// Remembers what keys of blocks are made of, and stores those of blocks that end here.
  void store_keys(const Pass& pass, int layer, const Tensor& normed) const {
    const KvLayer& kv = pass.kv[static_cast<size_t>(layer)];
    const Tensor& memory = pass.recurrent[static_cast<size_t>(layer)].inputs;
    store(pass, keys_, normed, memory.slice_columns(0, 2 * keys_.channels()), kv.blocks);
    if (ratio_ == kShortBlock)
      store(pass, index_, normed, memory.slice_columns(2 * keys_.channels(), 2 * index_.channels()), kv.block_index);
  }

  void store(const Pass& pass, const Compressor& c, const Tensor& normed, const Tensor& memory,
             const Tensor& to) const {
    Compute& compute = pass.compute;
    const int64_t n = normed.shape[1];
    const Tensor values = pass.scratch.get(ScratchPart::block_values, c.channels(), n);
    const Tensor gates = pass.scratch.get(ScratchPart::block_gates, c.channels(), n);
    const Tensor key = pass.scratch.get(ScratchPart::key, c.width, n);
    const std::array<MatmulTerm, 2> terms{c.value.to(values), c.gate.to(gates)};
    compute.matmul(normed, terms);
    compute.compress(
        {.values = values, .gates = gates, .bias = c.bias, .ratio = c.ratio, .overlapping = c.overlapping()}, pass.rows,
        memory, key);
    compute.rms_norm(key, c.norm, rms_eps_, key);
    rotate(compute, key.reshaped({c.width, 1, n, 1}), rows_of(pass, block_table(), n));
    compute.store_blocks(key, pass.rows, c.ratio, to);
  }

  Tensor choose(const Pass& pass, const KvLayer& kv, const Tensor& normed, const Tensor& small) const {
    Compute& compute = pass.compute;
    const int64_t n = normed.shape[1], index_heads = shape_.index_heads, length = shape_.index_length;
    const Tensor q = pass.scratch.get(ScratchPart::index_query, index_heads * length, n);
    const Tensor weights = pass.scratch.get(ScratchPart::step, index_heads, n);
    Tensor picks = pass.scratch.get(ScratchPart::block_picks, shape_.top_k, n);
    picks.type = TensorType::i32;
    apply(compute, index_query_, small, q);
    apply(compute, index_weights_, normed, weights);
    const Tensor q_heads = q.reshaped({length, index_heads, n, 1});
    rotate(compute, q_heads, rows_of(pass, table(), n));
    compute.choose_blocks({.query = q_heads,
                           .weights = weights,
                           .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(length * index_heads))),
                           .ratio = ratio_,
                           .top_k = shape_.top_k},
                          pass.rows, kv.block_index, picks);
    return picks;
  }

  BlockAttentionShape shape_;
  int64_t heads_, length_, rotated_, ratio_;
  float rms_eps_;
  RopePairs pairs_;
  AttentionParams params_;
  StreamMix streams_;
  Tensor norm_, query_norm_, key_norm_, narrow_;
  float narrow_scale_ = 1.0f;
  Linear query_down_, query_, key_, output_, index_weights_ = {}, index_query_ = {};
  Compressor keys_ = {}, index_ = {};
};

}  // namespace

std::unique_ptr<Mixer> bind_block_attention(WeightBinder& binder, const HParams& hparams, int layer,
                                            const BlockAttentionShape& shape) {
  return std::make_unique<BlockAttentionMixer>(binder, hparams, layer, shape);
}

}  // namespace moetier
