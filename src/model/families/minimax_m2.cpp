// minimax-m2: queries and keys are normalized as whole vectors, part of each head is rotated; sigmoid router with a
// bias for choosing.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_minimax_m2(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "feed_forward_length", 1, kMaxWidth);
  const Gating gating = read_gating(file, std::nullopt);
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.qk_norm = QkNorm::whole},
                       .moe = {.gating = gating, .normalize = true, .selection_bias = Presence::required},
                       .partial_rotation = true});
}

}  // namespace moetier
