// llama4: most layers rotate and see only their chunk of positions, every fourth does neither; experts in every layer
// or every second one, whose input is weighted and not their output, beside a shared expert.
#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {
namespace {

constexpr int64_t kChunk = 8192;
constexpr int64_t kExpertsWithoutNorm = 128;  // Maverick does not normalize queries and keys

/// How a layer attends: `period` is of layers, the last of which sees everything.
AttentionTraits attention_of(const HParams& h, int layer, int64_t period) {
  const bool local = period == 0 || layer % period < period - 1;
  if (!local) return {.rotated = false, .temperature = {.scale = 0.1, .length = kChunk, .offset = 1}};
  return {.qk_norm = h.experts == kExpertsWithoutNorm ? QkNorm::none : QkNorm::plain,
          .norm_after_rope = true,
          .chunk = kChunk};
}

}  // namespace

std::unique_ptr<Model> load_llama4(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  h.shared_width = h.expert_width;
  h.moe_step = static_cast<int>(need_count(file, "interleave_moe_layer_step", 1, kMaxLayers));
  if (read_count(file, "attention.sliding_window", 0, kMaxPositions, kChunk) == 0)
    fail("{}: {}.attention.sliding_window is 0; models without chunks are not supported", file.path(), h.architecture);
  const int64_t period = read_count(file, "attention.sliding_window_pattern", 0, kMaxLayers, 4);
  const double base = read_number(file, "rope.freq_base_swa", h.rope.base, 1e-3, 1e12);
  if (base != h.rope.base)
    fail("{}: {}.rope.freq_base_swa is {}, but all layers that rotate do so with {}", file.path(), h.architecture, base,
         h.rope.base);
  DecoderTraits traits{
      .moe = {.gating = Gating::sigmoid, .by_logits = true, .weigh_input = true, .shared = SharedForm::plain},
      .tied_output = true,
      .rope_factors = true};
  traits.mixer = [period](WeightBinder& binder, const HParams& hparams, int layer) -> std::unique_ptr<Mixer> {
    return std::make_unique<AttentionBlock>(
        bind_attention(binder, hparams, layer, attention_of(hparams, layer, period)));
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace moetier
