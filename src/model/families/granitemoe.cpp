// granitemoe: embeddings, what blocks add, and logits are scaled; a shared expert where the file has one.
#include "base/error.h"
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {
namespace {

/// A factor that 0 switches off.
float read_factor(const GgufFile& file, std::string_view key, float off) {
  const double factor = read_number(file, key, 0.0, -1e6, 1e6);
  return factor == 0.0 ? off : static_cast<float>(factor);
}

}  // namespace

std::unique_ptr<Model> load_granitemoe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  h.rope_pairs = RopePairs::neighbours;
  h.expert_width = need_count(file, "feed_forward_length", 1, kMaxWidth);
  h.shared_width = read_count(file, "expert_shared_feed_forward_length", 0, kMaxWidth, 0);
  h.embedding_scale = read_factor(file, "embedding_scale", 1.0f);
  h.residual_scale = read_factor(file, "residual_scale", 1.0f);
  h.attention_scale = read_factor(file, "attention.scale", 0.0f);
  const float divisor = read_factor(file, "logit_scale", 0.0f);
  if (divisor == 0.0f) fail("{}: the key {}.logit_scale is missing or 0", file.path(), h.architecture);
  h.logit_factor = 1.0f / divisor;
  return load_decoder(file, compute, std::move(h),
                      {.moe = {.normalize = true, .shared = SharedForm::plain},
                       .tied_output = true,
                       .rope_factors = true,
                       .partial_rotation = true});
}

}  // namespace moetier
