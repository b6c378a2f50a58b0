// qwen3moe: a norm for each query and key head, experts in every layer, and weights of the picks that sum to one.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_qwen3moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::halves;
  h.expert_width = read_expert_width(file, h);
  return load_decoder(file, compute, std::move(h),
                      {.attention = {.qk_norm = QkNorm::per_head}, .moe = {.normalize = true}, .tied_output = true});
}

}  // namespace moetier
