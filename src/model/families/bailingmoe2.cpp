// bailingmoe2: Ling and Ring 2. The first layers are dense; the router is the file's choice (sigmoid, in groups, with a
// bias for choosing), and there are shared experts. Part of each head may be rotated, after a norm.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_bailingmoe2(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  const int64_t shared = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  h.shared_width = (shared > 0 ? shared : h.expert_width) * need_count(file, "expert_shared_count", 0, kMaxExpertCount);
  read_leading_dense(file, h);
  const MoeTraits moe{.gating = read_gating(file, std::nullopt),
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .selection_bias = Presence::optional,
                      .shared = SharedForm::plain};
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.qk_norm = QkNorm::per_head}, .moe = moe, .partial_rotation = true});
}

}  // namespace moetier
