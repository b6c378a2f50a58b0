// qwen2moe: biases on queries, keys and values, and a shared expert whose output is gated by a sigmoid. The picks'
// weights are the router's probabilities as they are.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_qwen2moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = read_expert_width(file, h);
  const int64_t shared = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  h.shared_width = shared > 0 ? shared : need_count(file, "feed_forward_length", 1, kMaxWidth);
  return load_decoder(file, compute, std::move(h), {.moe = {.shared = SharedForm::gated}});
}

}  // namespace moetier
