// deepseek4: DeepSeek V4. Several residual streams; attention over a window and keys of blocks of positions; in all
// layers experts beside shared ones, which the first layers look up by the token.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/block_attention.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/streams.h"

namespace moetier {
namespace {

struct Shapes {
  HParams hparams;
  BlockAttentionShape attention;
  double block_base = 0;  ///< of the rotation in layers with blocks
  int looked_up = 0;      ///< layers whose experts are looked up
  int64_t per_token = 0;  ///< experts of a token in that table
};

std::vector<int64_t> read_ratios(const GgufFile& file, const HParams& h) {
  const std::string name = h.architecture + ".attention.compress_ratios";
  const auto ratios = file.get_ints(name);
  if (!ratios) fail("{}: the key {} is missing", file.path(), name);
  if (ratios->size() < static_cast<size_t>(h.layers))
    fail("{}: {} has {} values for {} layers", file.path(), name, ratios->size(), h.layers);
  std::vector<int64_t> result(ratios->begin(), ratios->begin() + h.layers);
  for (const int64_t ratio : result) {
    if (ratio != 0 && ratio != kShortBlock && ratio != kLongBlock)
      fail("{}: {} holds {}; supported are 0, {} and {}", file.path(), name, ratio, kShortBlock, kLongBlock);
  }
  return result;
}

StreamParams read_streams(const GgufFile& file) {
  StreamParams params;
  params.streams = need_count(file, "hyper_connection.count", 2, 8);
  params.iterations = static_cast<int>(need_count(file, "hyper_connection.sinkhorn_iterations", 1, 1000));
  params.eps = static_cast<float>(read_number(file, "hyper_connection.epsilon", 1e-6, 0.0, 1.0));
  return params;
}

/// What each layer keeps, and how much scratch mixing takes.
void set_memory(HParams& h, const BlockAttentionShape& a, const Shapes& s) {
  h.kv_shapes.clear();
  h.recurrent.clear();
  int64_t channels = 0;
  for (const int64_t ratio : a.ratios) {
    const bool chosen = ratio == kShortBlock;
    h.kv_shapes.push_back({1, h.key_length, h.key_length, true, ratio, chosen ? a.index_length : 0});
    RecurrentShape kept;
    if (ratio > 0) {
      kept.channels = 2 * (chosen ? 2 * (h.key_length + a.index_length) : h.key_length);
      kept.inputs = chosen ? 2 * ratio : ratio;
    }
    h.recurrent.push_back(kept);
    channels = std::max(channels, (chosen ? 2 : 1) * std::max(h.key_length, chosen ? a.index_length : 0));
  }
  h.mixer_floats = 2 * h.heads * h.key_length + h.key_length + std::max(h.key_length, a.index_length) + a.query_rank +
                   2 * channels + a.index_heads * (a.index_length + 1) + a.top_k + a.groups * a.output_rank +
                   h.residual_width() + 2 * h.streams * (2 + h.streams) + 4 * h.rope.dims + s.looked_up * s.per_token;
}

Shapes read_shapes(const GgufFile& file) {
  Shapes s;
  s.hparams = read_hparams(file, HeadsPerLayer::same, true);
  HParams& h = s.hparams;
  BlockAttentionShape& a = s.attention;
  if (h.kv_heads != 1 || h.key_length != h.value_length)
    fail(
        "{}: {} has one key/value head whose keys are the values, not {} of {} and {} ({}.attention.head_count_kv, "
        "key_length, value_length)",
        file.path(), h.architecture, h.kv_heads, h.key_length, h.value_length, h.architecture);
  a.query_rank = need_count(file, "attention.q_lora_rank", 1, kMaxWidth);
  a.groups = need_count(file, "attention.output_group_count", 1, kMaxHeads);
  a.output_rank = need_count(file, "attention.output_lora_rank", 1, kMaxWidth);
  if (h.heads % a.groups != 0)
    fail("{}: {}.attention.output_group_count is {}, which {} heads cannot share evenly", file.path(), h.architecture,
         a.groups, h.heads);
  a.ratios = read_ratios(file, h);
  a.index_heads = need_count(file, "attention.indexer.head_count", 1, kMaxHeads);
  a.index_length = need_count(file, "attention.indexer.key_length", 1, kMaxHeadLength);
  a.top_k = need_count(file, "attention.indexer.top_k", 1, kMaxWidth);
  if (a.index_length < h.rope.dims)
    fail("{}: {}.attention.indexer.key_length is {}, but {} elements are rotated ({}.rope.dimension_count)",
         file.path(), h.architecture, a.index_length, h.rope.dims, h.architecture);
  a.streams = read_streams(file);
  h.streams = static_cast<int>(a.streams.streams);
  h.windows.assign(static_cast<size_t>(h.layers), need_count(file, "attention.sliding_window", 1, kMaxPositions));
  s.block_base = read_number(file, "attention.compress_rope_freq_base", 0.0, 0.0, 1e12);
  if (!(s.block_base > 1.0))
    fail("{}: the key {}.attention.compress_rope_freq_base is missing, or not above 1", file.path(), h.architecture);
  s.looked_up = static_cast<int>(std::min<int64_t>(need_count(file, "hash_layer_count", 0, kMaxLayers), h.layers));
  s.per_token = file.own_int(h.architecture + ".expert_used_count").value_or(h.top_k);
  set_memory(h, a, s);
  return s;
}

/// Limits of activations, one for all layers or one for each; `absent` where the file has none.
std::vector<float> read_limits(const GgufFile& file, const HParams& h, std::string_view key,
                               const std::vector<float>& absent) {
  const std::string name = fmt::format("{}.{}", h.architecture, key);
  const auto values = file.get_floats(name);
  if (!values) {
    if (absent.empty()) fail("{}: the key {} is missing", file.path(), name);
    return absent;
  }
  std::vector<float> limits(values->begin(), values->end());
  if (limits.size() == 1) limits.resize(static_cast<size_t>(h.layers), limits.front());
  if (limits.size() < static_cast<size_t>(h.layers))
    fail("{}: {} has {} values for {} layers", file.path(), name, limits.size(), h.layers);
  for (float& limit : limits) {
    if (!std::isfinite(limit)) fail("{}: {} holds {}, which is no limit", file.path(), name, limit);
    if (limit <= 1e-6f) limit = 0.0f;  // none
  }
  return limits;
}

struct Layer {
  std::unique_ptr<Mixer> attention;
  StreamMix streams;
  MoeFfnBlock experts;
  Tensor looked_up = {};  ///< i32 [experts of a token, vocab], optional
};

class DeepSeek4 final : public Model {
 public:
  DeepSeek4(const GgufFile& file, Compute& compute, Shapes shapes, const MoeTraits& moe,
            const std::pair<std::vector<float>, std::vector<float>>& limits)
      : looked_up_(shapes.looked_up), per_token_(shapes.per_token) {
    hparams_ = std::move(shapes.hparams);
    const HParams& h = hparams_;
    WeightBinder binder(file, compute);
    embedding_ = binder.matrix("token_embd.weight", h.width, h.vocab);
    joined_ = bind_streams(binder, h, "output_hc", false, shapes.attention.streams);
    output_norm_ = binder.vector("output_norm.weight", h.width);
    head_ = {binder.matrix("output.weight", h.width, h.vocab), {}, binder.scale("output.weight")};
    set_rotations(shapes.block_base);
    for (int i = 0; i < h.layers; ++i) {
      MoeTraits traits = moe;
      traits.limit = limits.first[static_cast<size_t>(i)];
      traits.shared_limit = limits.second[static_cast<size_t>(i)];
      layers_.push_back(bind_layer(binder, i, shapes.attention, traits));
    }
    plan_layers();
    binder.warn_unused(h.layers);
    weights_ = binder.take();
  }

  const ScratchPlan& scratch_plan() const override { return plan_; }
  uint64_t dense_bytes() const override { return weights_.bytes; }

  void embed(const Pass& pass, const Tensor& x) const override {
    const int64_t n = x.shape[1];
    for (int s = 0; s < hparams_.streams; ++s)
      pass.compute.get_rows(embedding_, pass.rows.tokens, x.slice_columns(s * hparams_.width, hparams_.width));
    for (const auto& [part, rope] : rotations_) {
      if (plan_.columns(part) == 0) continue;
      pass.compute.rope_table(rope, pass.rows.positions,
                              pass.scratch.get(part, rope.dims, pass.first_row + n).slice_rows(pass.first_row, n));
    }
    for (int i = 0; i < looked_up_; ++i)
      pass.compute.get_rows(layers_[static_cast<size_t>(i)].looked_up, pass.rows.tokens,
                            chosen(pass, n).slice_columns(i * per_token_, per_token_));
  }

  void mix(const Pass& pass, int index, const Tensor& x) const override {
    layers_[static_cast<size_t>(index)].attention->run(pass, index, x);
  }

  void ffn(const Pass& pass, int index, const Tensor& x) const override {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    const int64_t n = x.shape[1];
    const Tensor weights = pass.scratch.get(ScratchPart::stream_weights, layer.streams.numbers(), n);
    const Tensor joined = pass.scratch.get(ScratchPart::moe_in, hparams_.width, n);
    for_parts(pass, n, [&](int64_t first, int64_t rows) {
      layer.streams.join(pass, x.slice_rows(first, rows), weights.slice_rows(first, rows),
                         joined.slice_rows(first, rows));
    });
    const Tensor picks =
        layer.looked_up.empty() ? Tensor{} : chosen(pass, n).slice_columns(index * per_token_, hparams_.top_k);
    pass.compute.spread_streams(layer.streams.params, layer.experts.result(pass, joined, picks), weights, x);
  }

  void head(const Pass& pass, const Tensor& x, const Tensor& logits) const override {
    const Tensor normed = pass.scratch.get(ScratchPart::normed, hparams_.width, x.shape[1]);
    last_hidden(pass, x, normed);
    apply(pass.compute, head_, normed, logits);
  }

  void last_hidden(const Pass& pass, const Tensor& x, const Tensor& out) const override {
    joined_.join(pass, x, pass.scratch.get(ScratchPart::stream_weights, joined_.numbers(), x.shape[1]), out);
    pass.compute.rms_norm(out, output_norm_, hparams_.rms_eps, out);
  }

 private:
  struct Rotation {
    ScratchPart part;
    RopeParams rope;
  };

  /// Layers without blocks rotate plainly. In others the file's scaling holds, for positions and beginnings of blocks.
  void set_rotations(double block_base) {
    RopeParams plain = hparams_.rope, scaled = hparams_.rope;
    plain.magnitude = scaled.magnitude = 1.0;
    plain.freq_scale = 1.0;
    plain.ext_factor = 0.0;
    scaled.base = block_base;
    RopeParams short_blocks = scaled, long_blocks = scaled;
    short_blocks.step = kShortBlock;
    long_blocks.step = kLongBlock;
    rotations_ = {{ScratchPart::rope, plain},
                  {ScratchPart::windowed_rope, scaled},
                  {ScratchPart::block_rope, short_blocks},
                  {ScratchPart::long_block_rope, long_blocks}};
  }

  Layer bind_layer(WeightBinder& binder, int index, const BlockAttentionShape& shape, const MoeTraits& moe) const {
    const HParams& h = hparams_;
    MoeTraits traits = moe;
    const bool looked_up = index < looked_up_;
    traits.selection_bias = looked_up ? Presence::none : Presence::required;
    Layer layer{bind_block_attention(binder, h, index, shape),
                bind_streams(binder, h, layer_tensor(index, "hc_ffn"), true, shape.streams),
                bind_moe_ffn(binder, h, index, "ffn_norm.weight", traits)};
    if (looked_up)
      layer.looked_up =
          binder.table(layer_tensor(index, "ffn_gate_tid2eid.weight"), per_token_, h.vocab, h.experts - 1);
    binder.vector_if(layer_tensor(index, "exp_probs_b_vl.bias"), h.experts);  // for tokens of images only
    return layer;
  }

  void plan_layers() {
    joined_.plan(plan_);
    for (const Layer& layer : layers_) {
      layer.attention->plan(plan_);
      layer.streams.plan(plan_);
      layer.experts.plan(plan_);
    }
    plan_.need(ScratchPart::chosen, looked_up_ * per_token_);
  }

  /// Experts that an ubatch's tokens look up, layer after layer.
  Tensor chosen(const Pass& pass, int64_t n) const {
    Tensor all = pass.scratch.get(ScratchPart::chosen, looked_up_ * per_token_, pass.first_row + n);
    all.type = TensorType::i32;
    return all.slice_rows(pass.first_row, n);
  }

  int looked_up_;
  int64_t per_token_;
  DenseWeights weights_;
  Tensor embedding_, output_norm_;
  StreamMix joined_;
  Linear head_;
  std::vector<Rotation> rotations_;
  std::vector<Layer> layers_;
  ScratchPlan plan_;
};

}  // namespace

HParams read_deepseek4(const GgufFile& file) {
  return read_shapes(file).hparams;
}

std::unique_ptr<Model> load_deepseek4(const GgufFile& file, Compute& compute) {
  Shapes shapes = read_shapes(file);
  HParams& h = shapes.hparams;
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  h.shared_width = h.expert_width * need_count(file, "expert_shared_count", 1, kMaxExpertCount);
  const Gating gating = read_gating(file, std::nullopt);
  if (gating != Gating::sqrt_softplus)
    fail("{}: {}.expert_gating_func must be 4 (square root of softplus)", file.path(), h.architecture);
  if (shapes.looked_up > 0 && h.top_k > shapes.per_token)
    fail("{}: {} experts of a token were asked for, but the first layers look up {} ({}.expert_used_count)",
         file.path(), h.top_k, shapes.per_token, h.architecture);
  const MoeTraits moe{.gating = gating,
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .shared = SharedForm::plain};
  const std::vector<float> limits = read_limits(file, h, "swiglu_clamp_exp", {});
  const std::vector<float> shared_limits = read_limits(file, h, "swiglu_clamp_shexp", limits);
  return std::make_unique<DeepSeek4>(file, compute, std::move(shapes), moe, std::pair{limits, shared_limits});
}

}  // namespace moetier
