// nemotron_h_moe: each layer is one block: Mamba 2, attention without rotation, or experts without a gate (relu
// squared), which may work on a narrower form of the row.
#include <algorithm>

#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mamba.h"

namespace moetier {
namespace {

enum class Kind : uint8_t { mamba, attention, experts };

Kind kind_of(const HParams& h, int layer) {
  const auto i = static_cast<size_t>(layer);
  if (h.layer_ffn_widths[i] > 0) return Kind::experts;
  return h.layer_kv_heads[i] > 0 ? Kind::attention : Kind::mamba;
}

}  // namespace

HParams read_nemotron_h_moe(const GgufFile& file) {
  HParams h = read_hparams(file, HeadsPerLayer::some_without);
  const MambaShape shape = read_mamba_shape(file, h);
  for (int i = 0; i < h.layers; ++i) {
    const Kind kind = kind_of(h, i);
    h.recurrent.push_back(kind == Kind::mamba ? remembered(shape) : RecurrentShape{});
    h.kv_shapes.push_back(kind == Kind::attention ? KvShape{h.kv_heads, h.key_length, h.value_length} : KvShape{});
  }
  const int64_t q = h.heads * h.key_length, k = h.kv_heads * h.key_length, v = h.kv_heads * h.value_length;
  h.mixer_floats = shape.channels() + shape.inner + shape.heads + std::max(shape.inner, v) +
                   std::max(shape.grouped(), k) + std::max(shape.grouped(), q) +
                   std::max(shape.inner, h.heads * h.value_length);
  h.shared_width = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  return h;
}

std::unique_ptr<Model> load_nemotron_h_moe(const GgufFile& file, Compute& compute) {
  HParams h = read_nemotron_h_moe(file);
  require_experts(file, h);
  const MambaShape shape = read_mamba_shape(file, h);
  h.expert_width = read_expert_width(file, h);
  const MoeTraits moe{.gating = Gating::sigmoid,
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .activation = Activation::relu,
                      .gated = false,
                      .selection_bias = Presence::required,
                      .shared = SharedForm::plain,
                      .latent_width = read_count(file, "moe_latent_size", 0, kMaxWidth, 0)};
  DecoderTraits traits{.attention = {.rotated = false},
                       .moe = moe,
                       .ffn_norm = "attn_norm.weight",
                       .tied_output = true,
                       .rotated = false,
                       .partial_rotation = true};
  traits.mixer = [shape, attention = traits.attention](WeightBinder& binder, const HParams& hparams,
                                                       int layer) -> std::unique_ptr<Mixer> {
    switch (kind_of(hparams, layer)) {
      case Kind::mamba:
        return bind_mamba(binder, hparams, layer, shape);
      case Kind::attention:
        return std::make_unique<AttentionBlock>(bind_attention(binder, hparams, layer, attention));
      case Kind::experts:
        break;
    }
    return nullptr;
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace moetier
