// hunyuan-moe: queries and keys are rotated first and then normalized per head; experts and a shared expert.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_hunyuan_moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  // The file's own key for the experts' width is there, but their tensors follow this one.
  h.expert_width = need_count(file, "feed_forward_length", 1, kMaxWidth);
  const int64_t shared = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  h.shared_width = shared > 0 ? shared : h.expert_width;
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.qk_norm = QkNorm::per_head, .norm_after_rope = true},
                       .moe = {.normalize = true, .shared = SharedForm::plain},
                       .tied_output = true});
}

}  // namespace moetier
