// gemma4 with experts: windowed layers, and full ones with heads of another size; a norm on both sides of each block,
// and in each layer a dense FFN beside the experts, whose router sees the residual under a scale of its own.
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/blocks.h"
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {
namespace {

/// What windowed layers share, and what full ones share.
struct LayerKind {
  RopeParams rope;
  ScratchPart table = ScratchPart::rope;
};

struct ExpertsPart {
  Tensor norm, dense_post_norm, post_norm;
  Tensor router_norm;  ///< f32 [width]: the router's own scale
  MoeLayer moe;
};

struct GemmaLayer {
  int64_t head_length = 0, kv_heads = 0;
  bool windowed = false;
  AttentionParams params;
  Tensor attention_norm, post_attention_norm, query_norm, key_norm;
  Linear query, key, value, output;
  Tensor ffn_norm, post_ffn_norm;
  Linear gate, up, down;
  std::optional<ExpertsPart> experts;
  float output_scale = 1.0f;
};

class Gemma4 final : public Model {
 public:
  Gemma4(const GgufFile& file, Compute& compute, HParams hparams, RopeParams windowed_rope) {
    hparams_ = std::move(hparams);
    const HParams& h = hparams_;
    WeightBinder binder(file, compute);
    embedding_ = binder.matrix("token_embd.weight", h.width, h.vocab);
    output_norm_ = binder.vector("output_norm.weight", h.width);
    head_ = binder.has("output.weight") ? bind(binder, "output.weight", h.width, h.vocab) : Linear{embedding_};
    bool any_full = false;
    for (int i = 0; i < h.layers; ++i) any_full = any_full || h.window(i) == 0;
    full_.rope = h.rope;
    if (any_full) full_.rope.factors = binder.vector("rope_freqs.weight", h.rope.dims / 2);
    windowed_.rope = std::move(windowed_rope);
    windowed_.table = ScratchPart::windowed_rope;
    for (int i = 0; i < h.layers; ++i) layers_.push_back(bind_layer(binder, compute, i));
    plan_layers();
    binder.warn_unused(h.layers);
    weights_ = binder.take();
  }

  const ScratchPlan& scratch_plan() const override { return plan_; }
  uint64_t dense_bytes() const override { return weights_.bytes; }

  void embed(const Pass& pass, const Tensor& x) const override {
    pass.compute.get_rows(embedding_, pass.rows.tokens, x);
    pass.compute.scale(hparams_.embedding_scale, x, x);
    for (const LayerKind* kind : {&full_, &windowed_})
      pass.compute.rope_table(kind->rope, pass.rows.positions, table(pass, *kind, x.shape[1]));
  }

  void mix(const Pass& pass, int index, const Tensor& x) const override;
  void ffn(const Pass& pass, int index, const Tensor& x) const override;

  void head(const Pass& pass, const Tensor& x, const Tensor& logits) const override {
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], x.shape[1]);
    last_hidden(pass, x, normed);
    apply(pass.compute, head_, normed, logits);
    if (hparams_.logit_cap > 0) pass.compute.soft_cap(hparams_.logit_cap, logits, logits);
  }
  void last_hidden(const Pass& pass, const Tensor& x, const Tensor& out) const override {
    pass.compute.rms_norm(x, output_norm_, hparams_.rms_eps, out);
  }

 private:
  static Tensor table(const Pass& pass, const LayerKind& kind, int64_t n) {
    return pass.scratch.get(kind.table, kind.rope.dims, pass.first_row + n).slice_rows(pass.first_row, n);
  }
  static void apply(Compute& compute, const Linear& linear, const Tensor& x, const Tensor& out) {
    const MatmulTerm term = linear.to(out);
    compute.matmul(x, std::span(&term, 1));
  }
  static Linear bind(WeightBinder& binder, const std::string& name, int64_t columns, int64_t rows) {
    return {binder.matrix(name, columns, rows), {}, binder.scale(name)};
  }
  const LayerKind& kind(const GemmaLayer& layer) const { return layer.windowed ? windowed_ : full_; }
  GemmaLayer bind_layer(WeightBinder& binder, Compute& compute, int index) const;
  void bind_attention(WeightBinder& binder, int index, GemmaLayer& layer) const;
  ExpertsPart bind_experts(WeightBinder& binder, int index) const;
  void plan_layers();

  DenseWeights weights_;
  Tensor embedding_, output_norm_;
  Linear head_;
  LayerKind full_, windowed_;
  std::vector<GemmaLayer> layers_;
  ScratchPlan plan_;
};

void Gemma4::bind_attention(WeightBinder& binder, int index, GemmaLayer& layer) const {
  const HParams& h = hparams_;
  const auto name = [index](std::string_view tensor) { return layer_tensor(index, tensor); };
  const KvShape kv = h.kv_shape(index);
  layer.head_length = kv.key_length;
  layer.kv_heads = kv.heads;
  layer.windowed = h.window(index) > 0;
  layer.params.scale = 1.0f;
  layer.params.window = h.window(index);
  const int64_t q = h.heads * layer.head_length, k = layer.kv_heads * layer.head_length;
  if (binder.has(name("attn_qkv.weight"))) {
    const Linear fused = bind(binder, name("attn_qkv.weight"), h.width, q + 2 * k);
    layer.query = {fused.weight.slice_rows(0, q), {}, fused.scale};
    layer.key = {fused.weight.slice_rows(q, k), {}, fused.scale};
    layer.value = {fused.weight.slice_rows(q + k, k), {}, fused.scale};
  } else {
    layer.query = bind(binder, name("attn_q.weight"), h.width, q);
    layer.key = bind(binder, name("attn_k.weight"), h.width, k);
    // Without a projection of their own, values are the keys as projected.
    layer.value = binder.has(name("attn_v.weight")) ? bind(binder, name("attn_v.weight"), h.width, k) : layer.key;
  }
  layer.query_norm = binder.vector(name("attn_q_norm.weight"), layer.head_length);
  layer.key_norm = binder.vector(name("attn_k_norm.weight"), layer.head_length);
  layer.output = bind(binder, name("attn_output.weight"), q, h.width);
}

GemmaLayer Gemma4::bind_layer(WeightBinder& binder, Compute& compute, int index) const {
  const HParams& h = hparams_;
  const auto name = [index](std::string_view tensor) { return layer_tensor(index, tensor); };
  GemmaLayer layer;
  layer.attention_norm = binder.vector(name("attn_norm.weight"), h.width);
  layer.post_attention_norm = binder.vector(name("post_attention_norm.weight"), h.width);
  layer.ffn_norm = binder.vector(name("ffn_norm.weight"), h.width);
  layer.post_ffn_norm = binder.vector(name("post_ffw_norm.weight"), h.width);
  bind_attention(binder, index, layer);
  layer.gate = bind(binder, name("ffn_gate.weight"), h.width, h.ffn_width);
  layer.up = bind(binder, name("ffn_up.weight"), h.width, h.ffn_width);
  layer.down = bind(binder, name("ffn_down.weight"), h.ffn_width, h.width);
  if (binder.has(name("ffn_gate_inp.weight")) || binder.has(name("ffn_down_exps.weight")))
    layer.experts = bind_experts(binder, index);
  const Tensor scale = binder.vector_if(name("layer_output_scale.weight"), 1);
  if (!scale.empty()) compute.download(scale, &layer.output_scale);
  return layer;
}

ExpertsPart Gemma4::bind_experts(WeightBinder& binder, int index) const {
  const HParams& h = hparams_;
  const auto name = [index](std::string_view tensor) { return layer_tensor(index, tensor); };
  // The shared part of all families binds the router, the stacks, and the norm before the experts.
  MoeFfnBlock block =
      bind_moe_ffn(binder, h, index, "pre_ffw_norm_2.weight", {.normalize = true, .activation = Activation::gelu});
  ExpertsPart part;
  part.norm = block.norm;
  part.moe = block.moe;
  part.dense_post_norm = binder.vector(name("post_ffw_norm_1.weight"), h.width);
  part.post_norm = binder.vector(name("post_ffw_norm_2.weight"), h.width);
  part.router_norm = binder.vector(name("ffn_gate_inp.scale"), h.width);
  return part;
}

void Gemma4::plan_layers() {
  const HParams& h = hparams_;
  for (const GemmaLayer& layer : layers_) {
    plan_.need(ScratchPart::query, h.heads * layer.head_length);
    plan_.need(ScratchPart::key, layer.kv_heads * layer.head_length);
    plan_.need(ScratchPart::value, layer.kv_heads * layer.head_length);
    plan_.need(ScratchPart::attended, h.heads * layer.head_length);
    if (!layer.experts) continue;
    plan_.need(ScratchPart::moe_in, h.width);
    plan_.need(ScratchPart::moe_out, h.width);
    plan_.need(ScratchPart::router_in, h.width);
  }
  plan_.need(ScratchPart::normed, h.width);
  plan_.need(ScratchPart::gate, h.ffn_width);
  plan_.need(ScratchPart::up, h.ffn_width);
  plan_.need(ScratchPart::ffn_out, h.width);
  for (const LayerKind* kind : {&full_, &windowed_}) plan_.need(kind->table, kind->rope.dims);
}

void Gemma4::mix(const Pass& pass, int index, const Tensor& x) const {
  const GemmaLayer& layer = layers_[static_cast<size_t>(index)];
  Compute& compute = pass.compute;
  const float eps = hparams_.rms_eps;
  const int64_t n = x.shape[1], length = layer.head_length, heads = hparams_.heads, kv_heads = layer.kv_heads;
  const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
  const Tensor q = pass.scratch.get(ScratchPart::query, heads * length, n);
  const Tensor k = pass.scratch.get(ScratchPart::key, kv_heads * length, n);
  const Tensor v = pass.scratch.get(ScratchPart::value, kv_heads * length, n);
  const Tensor attended = pass.scratch.get(ScratchPart::attended, heads * length, n);
  compute.rms_norm(x, layer.attention_norm, eps, normed);
  const std::array<MatmulTerm, 3> terms{layer.query.to(q), layer.key.to(k), layer.value.to(v)};
  compute.matmul(normed, terms);
  const Tensor q_heads = q.reshaped({length, heads, n, 1}), k_heads = k.reshaped({length, kv_heads, n, 1});
  const Tensor v_heads = v.reshaped({length, kv_heads, n, 1});
  compute.rms_norm(q_heads, layer.query_norm, eps, q_heads);
  compute.rms_norm(k_heads, layer.key_norm, eps, k_heads);
  compute.rms_norm(v_heads, {}, eps, v_heads);
  const Tensor angles = table(pass, kind(layer), n);
  compute.rope(q_heads, angles, RopePairs::halves);
  compute.rope(k_heads, angles, RopePairs::halves);
  const KvLayer& kv = pass.kv[static_cast<size_t>(index)];
  compute.store_kv(k_heads, v_heads, pass.rows, kv);
  compute.attention(q_heads, pass.rows, kv, layer.params, attended.reshaped({length, heads, n, 1}));
  apply(compute, layer.output, attended, normed);
  compute.rms_norm(normed, layer.post_attention_norm, eps, normed);
  compute.add(x, normed, x);
}

void Gemma4::ffn(const Pass& pass, int index, const Tensor& all) const {
  const GemmaLayer& layer = layers_[static_cast<size_t>(index)];
  Compute& compute = pass.compute;
  const float eps = hparams_.rms_eps;
  Tensor routed;
  if (layer.experts) {
    if (pass.moe == nullptr) fail("layer {} has experts, but the pass was given no MoE operation", index);
    const int64_t n = all.shape[1];
    const Tensor in = pass.scratch.get(ScratchPart::moe_in, all.shape[0], n);
    const Tensor router_in = pass.scratch.get(ScratchPart::router_in, all.shape[0], n);
    routed = pass.scratch.get(ScratchPart::moe_out, all.shape[0], n);
    compute.rms_norm(all, layer.experts->norm, eps, in);
    compute.rms_norm(all, layer.experts->router_norm, eps, router_in);
    compute.scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(hparams_.width))), router_in, router_in);
    pass.moe->run(layer.experts->moe, in, router_in, routed);
    compute.rms_norm(routed, layer.experts->post_norm, eps, routed);
  }
  for_parts(pass, all.shape[1], [&](int64_t first, int64_t n) {
    const Tensor x = all.slice_rows(first, n);
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const Tensor g = pass.scratch.get(ScratchPart::gate, hparams_.ffn_width, n);
    const Tensor u = pass.scratch.get(ScratchPart::up, hparams_.ffn_width, n);
    const Tensor out = pass.scratch.get(ScratchPart::ffn_out, x.shape[0], n);
    compute.rms_norm(x, layer.ffn_norm, eps, normed);
    const std::array<MatmulTerm, 2> terms{layer.gate.to(g), layer.up.to(u)};
    compute.matmul(normed, terms);
    compute.glu(Activation::gelu, g, u, g);
    apply(compute, layer.down, g, out);
    if (layer.experts) {
      compute.rms_norm(out, layer.experts->dense_post_norm, eps, out);
      compute.add(out, routed.slice_rows(first, n), out);
    }
    compute.rms_norm(out, layer.post_ffn_norm, eps, out);
    compute.add(x, out, x);
    if (layer.output_scale != 1.0f) compute.scale(layer.output_scale, x, x);
  });
}

/// The rotation of windowed layers.
RopeParams read_windowed_rope(const GgufFile& file, const HParams& h) {
  const int64_t length = need_count(file, "attention.key_length_swa", 1, kMaxHeadLength);
  for (const KvShape& shape : h.kv_shapes) {
    if (shape.key_length != shape.value_length)
      fail("{}: keys and values of {} must have heads of one size in each kind of layer", file.path(), h.architecture);
  }
  RopeParams windowed = h.rope;
  windowed.dims = read_count(file, "rope.dimension_count_swa", 1, kMaxHeadLength, length);
  if (windowed.dims % 2 != 0 || windowed.dims > length)
    fail("{}: {}.rope.dimension_count_swa is {}, but it must be even and at most the head size {}", file.path(),
         h.architecture, windowed.dims, length);
  windowed.base = read_number(file, "rope.freq_base_swa", 10000.0, 1e-3, 1e12);
  windowed.freq_scale = 1.0;
  return windowed;
}

}  // namespace

HParams read_gemma4(const GgufFile& file) {
  return read_hparams(file, HeadsPerLayer::may_differ);
}

std::unique_ptr<Model> load_gemma4(const GgufFile& file, Compute& compute) {
  HParams h = read_gemma4(file);
  require_experts(file, h);
  if (read_count(file, "embedding_length_per_layer_input", 0, kMaxWidth, 0) > 0)
    fail(
        "{}: {}.embedding_length_per_layer_input is set; gemma4 models with embeddings per layer (E2B, E4B) are not "
        "supported",
        file.path(), h.architecture);
  if (read_count(file, "attention.shared_kv_layers", 0, kMaxLayers, 0) > 0)
    fail("{}: {}.attention.shared_kv_layers is set; layers that use the keys and values of others are not supported",
         file.path(), h.architecture);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = read_expert_width(file, h);
  if (h.ffn_width == 0) fail("{}: the key {}.feed_forward_length is missing", file.path(), h.architecture);
  h.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(h.width)));
  h.logit_cap = static_cast<float>(read_number(file, "final_logit_softcapping", 30.0, 0.0, 1e6));
  RopeParams windowed = read_windowed_rope(file, h);
  return std::make_unique<Gemma4>(file, compute, std::move(h), std::move(windowed));
}

}  // namespace moetier
