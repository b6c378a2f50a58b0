// glm4moe: GLM-4.5 and 4.6. The first layers are dense; sigmoid router with a bias for choosing, and a shared expert.
// Part of each head is rotated, after a norm where the file has one.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_glm4moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = read_expert_width(file, h);
  h.shared_width = h.expert_width * need_count(file, "expert_shared_count", 0, kMaxExpertCount);
  read_leading_dense(file, h);
  const bool normed = file.find_tensor("blk.0.attn_q_norm.weight") != nullptr ||
                      file.find_tensor("blk.0.attn_k_norm.weight") != nullptr;
  const MoeTraits moe{.gating = read_gating(file, Gating::sigmoid),
                      .normalize = read_flag(file, "expert_weights_norm", false),
                      .scale = read_weights_scale(file),
                      .selection_bias = Presence::required,
                      .shared = SharedForm::plain};
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.qk_norm = normed ? QkNorm::per_head : QkNorm::none},
                       .moe = moe,
                       .ffn_norm = "post_attention_norm.weight",
                       .tied_output = true,
                       .partial_rotation = true});
}

}  // namespace moetier
