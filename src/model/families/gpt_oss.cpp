// gpt-oss: every second layer sees a window, each head has a sink, and router, experts and projections are biased.
// Picks are the highest logits, weighed by the softmax of these.
#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_gpt_oss(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  read_windows(file, h, 2);
  const double base = read_number(file, "rope.freq_base_swa", h.rope.base, 1e-3, 1e12);
  if (base != h.rope.base)
    fail("{}: {}.rope.freq_base_swa is {}, but windowed layers rotate as the others do, with {}", file.path(),
         h.architecture, base, h.rope.base);
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.output_bias = true, .sinks = true},
                       .moe = {.gating = Gating::softmax_of_picks,
                               .activation = Activation::swiglu_oai,
                               .router_bias = true,
                               .expert_biases = true},
                       .ffn_norm = "post_attention_norm.weight"});
}

}  // namespace moetier
