// bailingmoe3: delta nets whose decay is each key element's own, between layers of latent attention with gated heads;
// after some dense layers experts beside a shared one, chosen by sigmoids with a bias.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/latent_attention.h"

namespace moetier {
namespace {

struct KdaShape {
  int64_t taps = 0, head_length = 0, heads = 0;
  float least_decay = 0;

  int64_t width() const { return heads * head_length; }
};

/// Queries, keys and values each through a convolution; the result, normalized per head, is multiplied by sigmoids.
class Kda final : public Mixer {
 public:
  Kda(WeightBinder& binder, const HParams& h, int layer, const KdaShape& shape) : shape_(shape), rms_eps_(h.rms_eps) {
    const auto name = [layer](std::string_view tensor) { return layer_tensor(layer, tensor); };
    const auto linear = [&](std::string_view tensor, int64_t in, int64_t out) {
      return bind_linear(binder, layer, tensor, in, out);
    };
    const int64_t width = shape.width(), d = shape.head_length;
    norm_ = binder.vector(name("attn_norm.weight"), h.width);
    parts_ = {linear("attn_q", h.width, width), linear("attn_k", h.width, width), linear("attn_v", h.width, width)};
    constexpr std::array<std::string_view, 3> kKernels{"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                                       "ssm_conv1d_v.weight"};
    for (size_t i = 0; i < kKernels.size(); ++i)
      kernels_[i] = binder.transposed(name(kKernels[i]), shape.taps, width, true);
    decay_ = linear("ssm_f_a", h.width, width);
    step_ = linear("ssm_beta", h.width, shape.heads);
    gate_ = linear("ssm_g_a", h.width, width);
    factor_ = binder.floats(name("ssm_a"), 1, shape.heads).reshaped({shape.heads, 1, 1, 1});
    bias_ = binder.vector(name("ssm_dt.bias"), width).reshaped({d, shape.heads, 1, 1});
    head_norm_ = binder.vector(name("ssm_norm.weight"), d);
    unit_ = binder.constant(d, static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))));
    output_ = linear("attn_output", width, h.width);
  }

  void plan(ScratchPlan& plan) const override {
    plan.need(ScratchPart::normed, norm_.shape[0]);
    plan.need(ScratchPart::mixed, 3 * shape_.width());
    plan.need(ScratchPart::step, shape_.heads);
    for (const ScratchPart part : {ScratchPart::decay, ScratchPart::mix_gate, ScratchPart::query, ScratchPart::key,
                                   ScratchPart::value, ScratchPart::attended})
      plan.need(part, shape_.width());
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1], width = shape_.width();
    const auto wide = [&](ScratchPart part) { return pass.scratch.get(part, width, n); };
    const auto by_head = [&](const Tensor& rows) { return rows.reshaped({shape_.head_length, shape_.heads, n, 1}); };
    const RecurrentLayer& memory = pass.recurrent[static_cast<size_t>(layer)];
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const Tensor mixed = pass.scratch.get(ScratchPart::mixed, 3 * width, n);
    const Tensor decay = wide(ScratchPart::decay), gate = wide(ScratchPart::mix_gate);
    const Tensor step = pass.scratch.get(ScratchPart::step, shape_.heads, n);
    compute.rms_norm(x, norm_, rms_eps_, normed);
    const auto column = [&](int64_t i) { return mixed.slice_columns(i * width, width); };
    const std::array<MatmulTerm, 6> terms{parts_[0].to(column(0)), parts_[1].to(column(1)), parts_[2].to(column(2)),
                                          decay_.to(decay),        step_.to(step),          gate_.to(gate)};
    compute.matmul(normed, terms);

    const std::array<Tensor, 3> parts{wide(ScratchPart::query), wide(ScratchPart::key), wide(ScratchPart::value)};
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      compute.causal_conv(column(at), {.weight = kernels_[i], .silu = true}, pass.rows,
                          memory.inputs.slice_columns(at * width, width), parts[i]);
    }
    const Tensor q = by_head(parts[0]), k = by_head(parts[1]);
    const float eps = rms_eps_ / static_cast<float>(shape_.head_length);
    compute.rms_norm(q, unit_, eps, q);
    compute.rms_norm(k, unit_, eps, k);
    const Tensor out = wide(ScratchPart::attended), heads = by_head(out);
    compute.delta_rule({.query = q,
                        .key = k,
                        .value = by_head(parts[2]),
                        .decay = by_head(decay),
                        .step = step,
                        .bias = bias_,
                        .factor = factor_,
                        .least_decay = shape_.least_decay},
                       pass.rows, memory.state, heads);
    compute.rms_norm(heads, head_norm_, rms_eps_, heads);
    compute.glu(Activation::sigmoid, gate, out, out);
    apply(compute, output_, out, normed);
    compute.add(x, normed, x);
  }

 private:
  KdaShape shape_;
  float rms_eps_;
  Tensor norm_, factor_, bias_, head_norm_, unit_;
  std::array<Linear, 3> parts_;
  std::array<Tensor, 3> kernels_;
  Linear decay_, step_, gate_, output_;
};

struct Shapes {
  HParams hparams;
  KdaShape kda;
  LatentShape latent;
};

Shapes read_shapes(const GgufFile& file) {
  Shapes s;
  s.hparams = read_hparams(file, HeadsPerLayer::some_without);
  HParams& h = s.hparams;
  s.kda.taps = need_count(file, "ssm.conv_kernel", 2, 16);
  s.kda.head_length = need_count(file, "kda.head_dim", 16, 1024);
  s.kda.heads = h.heads;
  if (s.kda.head_length % 16 != 0)
    fail("{}: {}.kda.head_dim is {}, but it must be a multiple of 16", file.path(), h.architecture, s.kda.head_length);
  if (!read_flag(file, "kda.safe_gate", true))
    fail("{}: {}.kda.safe_gate is false, but only gates with a lower bound are supported", file.path(), h.architecture);
  s.kda.least_decay = static_cast<float>(read_number(file, "kda.gate_lower_bound", 0.0, -1e6, 1e6));
  if (!(s.kda.least_decay < 0))
    fail("{}: {}.kda.gate_lower_bound is missing or not below 0", file.path(), h.architecture);
  s.latent = read_latent_shape(file, h);
  s.latent.gated = true;
  if (!s.latent.absorbed) fail("{}: the key {}.attention.key_length_mla is missing", file.path(), h.architecture);
  const int64_t width = s.kda.width();
  for (size_t i = 0; i < h.kv_shapes.size(); ++i) {
    const bool kda = h.layer_kv_heads[i] == 0;
    if (kda) h.kv_shapes[i] = {};
    h.recurrent.push_back(kda ? RecurrentShape{3 * width, s.kda.taps - 1, s.kda.head_length, s.kda.head_length, h.heads}
                              : RecurrentShape{});
  }
  // The parts that both kinds of layers use are as wide as the wider one needs; the others come on top.
  h.mixer_floats += 3 * width + 2 * width + h.heads + std::max<int64_t>(0, width - h.heads * s.latent.key_length) +
                    width + std::max<int64_t>(0, width - h.heads * s.latent.value_length) +
                    std::max<int64_t>(0, width - h.heads * s.latent.rank);
  return s;
}

}  // namespace

HParams read_bailingmoe3(const GgufFile& file) {
  return read_shapes(file).hparams;
}

std::unique_ptr<Model> load_bailingmoe3(const GgufFile& file, Compute& compute) {
  const Shapes shapes = read_shapes(file);
  HParams h = shapes.hparams;
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  h.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shapes.latent.key_length)));
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  const int64_t shared = need_count(file, "expert_shared_count", 0, kMaxExpertCount);
  h.shared_width = read_count(file, "expert_shared_feed_forward_length", 1, kMaxWidth,
                              h.expert_width * std::max<int64_t>(1, shared));
  read_leading_dense(file, h);
  const MoeTraits moe{.gating = read_gating(file, std::nullopt),
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .selection_bias = Presence::required,
                      .shared = SharedForm::plain};
  DecoderTraits traits{.moe = moe, .tied_output = true, .partial_rotation = true};
  traits.mixer = [kda = shapes.kda, latent = shapes.latent](WeightBinder& binder, const HParams& hparams,
                                                            int layer) -> std::unique_ptr<Mixer> {
    if (hparams.recurrent[static_cast<size_t>(layer)].heads > 0)
      return std::make_unique<Kda>(binder, hparams, layer, kda);
    return bind_latent_attention(binder, hparams, layer, latent);
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace moetier
