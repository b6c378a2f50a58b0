// ernie4_5-moe: the first layers are dense, the others have experts: a softmax router, with a bias for choosing where
// the file has one, and shared experts where it has them.
#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_ernie4_5_moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  h.expert_width = need_count(file, "expert_feed_forward_length", 1, kMaxWidth);
  h.shared_width = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  h.moe_step = static_cast<int>(need_count(file, "interleave_moe_layer_step", 1, kMaxLayers));
  read_leading_dense(file, h);
  return load_decoder(file, compute, std::move(h),
                      {.moe = {.normalize = true, .selection_bias = Presence::optional, .shared = SharedForm::plain},
                       .tied_output = true});
}

}  // namespace moetier
