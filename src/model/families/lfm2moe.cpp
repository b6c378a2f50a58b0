// lfm2moe: most layers are short convolutions that are gated on both sides, the others attention; after some dense
// layers experts, chosen by sigmoids with a bias.
#include <algorithm>
#include <array>

#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {
namespace {

/// in_proj gives b, c and u; x += out_proj . (c * conv(b * u)).
class ShortConvolution final : public Mixer {
 public:
  ShortConvolution(WeightBinder& binder, const HParams& h, int layer)
      : width_(h.width),
        rms_eps_(h.rms_eps),
        norm_(binder.vector(layer_tensor(layer, "attn_norm.weight"), h.width)),
        kernel_(binder.transposed(layer_tensor(layer, "shortconv.conv.weight"),
                                  h.recurrent[static_cast<size_t>(layer)].inputs + 1, h.width)),
        input_(bind_linear(binder, layer, "shortconv.in_proj", h.width, 3 * h.width)),
        output_(bind_linear(binder, layer, "shortconv.out_proj", h.width, h.width)) {}

  void plan(ScratchPlan& plan) const override {
    plan.need(ScratchPart::normed, width_);
    plan.need(ScratchPart::mixed, 3 * width_);
    plan.need(ScratchPart::attended, width_);
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1];
    const Tensor normed = pass.scratch.get(ScratchPart::normed, width_, n);
    const Tensor all = pass.scratch.get(ScratchPart::mixed, 3 * width_, n);
    const Tensor out = pass.scratch.get(ScratchPart::attended, width_, n);
    const Tensor b = all.slice_columns(0, width_), c = all.slice_columns(width_, width_);
    const Tensor u = all.slice_columns(2 * width_, width_);
    compute.rms_norm(x, norm_, rms_eps_, normed);
    apply(compute, input_, normed, all);
    compute.glu(Activation::identity, b, u, u);
    compute.causal_conv(u, {.weight = kernel_}, pass.rows, pass.recurrent[static_cast<size_t>(layer)].inputs, out);
    compute.glu(Activation::identity, c, out, out);
    apply(compute, output_, out, normed);
    compute.add(x, normed, x);
  }

 private:
  int64_t width_;
  float rms_eps_;
  Tensor norm_, kernel_;
  Linear input_, output_;
};

}  // namespace

HParams read_lfm2moe(const GgufFile& file) {
  HParams h = read_hparams(file, HeadsPerLayer::some_without);
  const int64_t taps = need_count(file, "shortconv.l_cache", 2, 16);
  for (const int64_t heads : h.layer_kv_heads) {
    h.recurrent.push_back(heads == 0 ? RecurrentShape{h.width, taps - 1} : RecurrentShape{});
    h.kv_shapes.push_back(heads == 0 ? KvShape{} : KvShape{heads, h.key_length, h.value_length});
  }
  const int64_t q = h.heads * h.key_length, kv = h.kv_heads * (h.key_length + h.value_length);
  h.mixer_floats = 3 * h.width + q + kv + std::max(h.width, h.heads * h.value_length);
  return h;
}

std::unique_ptr<Model> load_lfm2moe(const GgufFile& file, Compute& compute) {
  HParams h = read_lfm2moe(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  read_leading_dense(file, h);
  const Gating gating = read_gating(file, std::nullopt);
  DecoderTraits traits{.attention = {.qk_norm = QkNorm::per_head},
                       .moe = {.gating = gating, .normalize = true, .selection_bias = Presence::required},
                       .output_norm = "token_embd_norm.weight",
                       .tied_output = true};
  traits.mixer = [attention = traits.attention](WeightBinder& binder, const HParams& hparams,
                                                int layer) -> std::unique_ptr<Mixer> {
    if (hparams.recurrent[static_cast<size_t>(layer)].channels > 0)
      return std::make_unique<ShortConvolution>(binder, hparams, layer);
    return std::make_unique<AttentionBlock>(bind_attention(binder, hparams, layer, attention));
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace moetier
