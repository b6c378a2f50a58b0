// olmoe: queries and keys are normalized over the whole projected vector, experts are feed_forward_length wide, and the
// picks' weights are the router's probabilities as they are.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_olmoe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = need_count(file, "feed_forward_length", 1, kMaxWidth);
  return load_decoder(file, compute, std::move(h), {.attention = {.qk_norm = QkNorm::whole}});
}

}  // namespace moetier
