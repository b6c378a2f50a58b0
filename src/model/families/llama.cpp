// llama: dense Llama, Mistral and relatives, and with experts (Mixtral), whose width is feed_forward_length. The
// converter has laid out queries and keys for rotation of neighbouring elements. Llama 3 files scale frequencies by
// `rope_freqs.weight`.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_llama(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  h.rope_pairs = RopePairs::neighbours;
  h.expert_width = h.experts > 0 ? need_count(file, "feed_forward_length", 1, kMaxWidth) : 0;
  return load_decoder(file, compute, std::move(h),
                      {.moe = {.normalize = true}, .tied_output = true, .rope_factors = true});
}

}  // namespace moetier
