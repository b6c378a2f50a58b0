// deepseek2: DeepSeek V2 and V3, Kimi K2 and relatives: latent attention, and after some dense layers experts beside
// shared ones; from V3 on the router has sigmoids, a bias for choosing, and groups.
#include <cmath>

#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/latent_attention.h"

namespace moetier {
namespace {

/// The attention's scale, and the rotation's magnitude. YaRN's magnitude moves from cos and sin into the scale where
/// the file has the model's own factor for it.
void read_yarn(const GgufFile& file, HParams& h, int64_t key_length) {
  const double stretch = 1.0 / h.rope.freq_scale;
  const double factor = read_number(file, "rope.scaling.yarn_log_multiplier", 0.0, 0.0, 100.0);
  const double own = read_number(file, "rope.scaling.attn_factor", 1.0, 1e-3, 1e3);
  if (h.rope.ext_factor != 0.0 && factor != 0.0) h.rope.magnitude = own;
  double magnitude = h.rope.magnitude;
  if (h.rope.ext_factor == 0.0) magnitude *= 1.0 + 0.1 * std::log(stretch);
  const double scale = magnitude * (1.0 + factor * std::log(stretch));
  h.attention_scale = static_cast<float>(scale * scale / std::sqrt(static_cast<double>(key_length)));
}

/// What a file without the key means.
Gating default_gating(const HParams& h) {
  constexpr int64_t kGlmVocab = 154880;  // GLM-4.7-Flash, whose first files lack the key
  return (h.layers == 47 || h.layers == 48) && h.vocab == kGlmVocab ? Gating::sigmoid : Gating::softmax;
}

}  // namespace

HParams read_deepseek2(const GgufFile& file) {
  HParams h = read_hparams(file);
  read_latent_shape(file, h);
  return h;
}

std::unique_ptr<Model> load_deepseek2(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  const LatentShape shape = read_latent_shape(file, h);
  read_yarn(file, h, shape.key_length);
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  h.shared_width = h.expert_width * need_count(file, "expert_shared_count", 0, kMaxExpertCount);
  read_leading_dense(file, h);
  const MoeTraits moe{.gating = read_gating(file, default_gating(h)),
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .selection_bias = Presence::optional,
                      .shared = SharedForm::plain};
  DecoderTraits traits{.moe = moe, .tied_output = true, .partial_rotation = true};
  traits.mixer = [shape](WeightBinder& binder, const HParams& hparams, int layer) {
    return bind_latent_attention(binder, hparams, layer, shape);
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace moetier
