// qwen3: dense, with a norm for each query and key head.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_qwen3(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_dense(file, h);
  h.rope_pairs = RopePairs::halves;
  return load_decoder(file, compute, std::move(h), {.attention = {.qk_norm = QkNorm::per_head}, .tied_output = true});
}

}  // namespace moetier
