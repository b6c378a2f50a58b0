#include "model/decoder.h"

#include <type_traits>
#include <utility>

#include "base/error.h"

namespace moetier {
namespace {

struct DecoderLayer {
  std::unique_ptr<Mixer> mixer;
  std::variant<std::monostate, DenseFfnBlock, MoeFfnBlock> ffn;
};

/// Calls body(block) unless there is none.
template <typename Body>
void with_ffn(const DecoderLayer& layer, Body body) {
  std::visit(
      [&](const auto& block) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(block)>, std::monostate>) body(block);
      },
      layer.ffn);
}

class DecoderModel final : public Model {
 public:
  DecoderModel(const GgufFile& file, Compute& compute, HParams hparams, const DecoderTraits& traits) {
    hparams_ = std::move(hparams);
    const HParams& h = hparams_;
    WeightBinder binder(file, compute);
    embedding_ = binder.matrix("token_embd.weight", h.width, h.vocab);
    output_norm_ = binder.vector(std::string(traits.output_norm), h.width);
    head_.weight = binder.has("output.weight") || !traits.tied_output ? binder.matrix("output.weight", h.width, h.vocab)
                                                                      : embedding_;
    head_.bias = traits.norm_biases ? binder.vector("output.bias", h.vocab) : binder.vector_if("output.bias", h.vocab);
    if (traits.norm_biases) output_norm_bias_ = binder.vector("output_norm.bias", h.width);
    if (binder.has("output.weight")) head_.scale = binder.scale("output.weight");
    if (traits.rope_factors) hparams_.rope.factors = binder.vector_if("rope_freqs.weight", h.rope.dims / 2);
    if (h.long_rope) {
      long_factors_ = binder.vector("rope_factors_long.weight", h.rope.dims / 2);
      short_factors_ = binder.vector("rope_factors_short.weight", h.rope.dims / 2);
    }
    rotated_ = traits.rotated;
    layers_.reserve(static_cast<size_t>(h.layers));
    for (int i = 0; i < h.layers; ++i) {
      layers_.push_back({bind_mixer(binder, h, i, traits), bind_ffn(binder, h, i, traits)});
      if (layers_.back().mixer) layers_.back().mixer->plan(plan_);
      with_ffn(layers_.back(), [this](const auto& ffn) { ffn.plan(plan_); });
    }
    binder.warn_unused(h.layers);
    weights_ = binder.take();
  }

  const ScratchPlan& scratch_plan() const override { return plan_; }

  void embed(const Pass& pass, const Tensor& x) const override {
    pass.compute.get_rows(embedding_, pass.rows.tokens, x);
    if (hparams_.embedding_scale != 1.0f) pass.compute.scale(hparams_.embedding_scale, x, x);
    if (!rotated_ || plan_.columns(ScratchPart::rope) == 0) return;  // or no layer asks for it
    RopeParams rope = hparams_.rope;
    if (hparams_.long_rope) rope.factors = pass.context > rope.original_context ? long_factors_ : short_factors_;
    pass.compute.rope_table(rope, pass.rows.positions, rope_rows(pass, rope.dims, x.shape[1]));
  }

  void mix(const Pass& pass, int index, const Tensor& x) const override {
    const DecoderLayer& layer = layers_[static_cast<size_t>(index)];
    if (layer.mixer) layer.mixer->run(pass, index, x);
  }

  void ffn(const Pass& pass, int index, const Tensor& x) const override {
    with_ffn(layers_[static_cast<size_t>(index)], [&](const auto& block) { block.run(pass, x); });
  }

  void head(const Pass& pass, const Tensor& x, const Tensor& logits) const override {
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], x.shape[1]);
    last_hidden(pass, x, normed);
    const MatmulTerm term = head_.to(logits);
    pass.compute.matmul(normed, std::span(&term, 1));
    if (hparams_.logit_factor != 1.0f) pass.compute.scale(hparams_.logit_factor, logits, logits);
  }

  void last_hidden(const Pass& pass, const Tensor& x, const Tensor& out) const override {
    pass.compute.rms_norm(x, output_norm_, hparams_.rms_eps, out);
    if (!output_norm_bias_.empty()) pass.compute.add(out, output_norm_bias_, out);
  }

  uint64_t dense_bytes() const override { return weights_.bytes; }

 private:
  static std::unique_ptr<Mixer> bind_mixer(WeightBinder& binder, const HParams& h, int layer,
                                           const DecoderTraits& traits) {
    if (traits.mixer) return traits.mixer(binder, h, layer);
    return std::make_unique<AttentionBlock>(bind_attention(binder, h, layer, traits.attention));
  }
  static decltype(DecoderLayer::ffn) bind_ffn(WeightBinder& binder, const HParams& h, int layer,
                                              const DecoderTraits& traits) {
    if (!h.layer_ffn_widths.empty() && h.layer_ffn_widths[static_cast<size_t>(layer)] == 0) return {};
    if (h.is_moe(layer)) {
      MoeFfnBlock block = bind_moe_ffn(binder, h, layer, traits.ffn_norm, traits.moe);
      if (traits.norm_biases) block.norm_bias = binder.vector(layer_tensor(layer, "ffn_norm.bias"), h.width);
      return block;
    }
    return bind_dense_ffn(binder, h, layer, traits.ffn_norm);
  }

  DenseWeights weights_;
  Tensor embedding_, output_norm_, output_norm_bias_ = {};
  Tensor long_factors_ = {}, short_factors_ = {};
  Linear head_;
  bool rotated_ = true;
  std::vector<DecoderLayer> layers_;
  ScratchPlan plan_;
};

}  // namespace

std::unique_ptr<Model> load_decoder(const GgufFile& file, Compute& compute, HParams hparams,
                                    const DecoderTraits& traits) {
  if (hparams.rope.dims != hparams.key_length && !traits.partial_rotation)
    fail("{}: {}.rope.dimension_count is {}, but {} rotates whole heads of {}", file.path(), hparams.architecture,
         hparams.rope.dims, hparams.architecture, hparams.key_length);
  if (hparams.long_rope && !traits.long_rope)
    fail("{}: {}.rope.scaling.type is \"longrope\", which is not supported for {}", file.path(), hparams.architecture,
         hparams.architecture);
  bool all_moe = true;
  for (int i = 0; i < hparams.layers; ++i) all_moe = all_moe && hparams.is_moe(i);
  if (!all_moe && hparams.ffn_width == 0)
    fail("{}: the key {}.feed_forward_length is missing", file.path(), hparams.architecture);
  return std::make_unique<DecoderModel>(file, compute, std::move(hparams), traits);
}

void require_experts(const GgufFile& file, const HParams& hparams) {
  if (hparams.experts == 0)
    fail("{}: {}.expert_count is missing or 0, but {} is an architecture with experts", file.path(),
         hparams.architecture, hparams.architecture);
}

void require_dense(const GgufFile& file, const HParams& hparams) {
  if (hparams.experts > 0)
    fail("{}: {}.expert_count is {}, but {} is a dense architecture", file.path(), hparams.architecture,
         hparams.experts, hparams.architecture);
}

}  // namespace moetier
