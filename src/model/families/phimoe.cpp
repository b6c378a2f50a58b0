// phimoe: norms and projections are biased, and so is the head; the rotation has factors for contexts longer than the
// original one, and others for shorter.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_phimoe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "feed_forward_length", 1, kMaxWidth);
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.output_bias = true, .norm_bias = true},
                       .moe = {.normalize = true},
                       .long_rope = true,
                       .norm_biases = true});
}

}  // namespace moetier
