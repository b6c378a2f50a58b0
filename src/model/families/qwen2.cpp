// qwen2: dense, with biases on queries, keys and values.
#include "model/decoder.h"
#include "model/families/families.h"

namespace moetier {

std::unique_ptr<Model> load_qwen2(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_dense(file, h);
  h.rope_pairs = RopePairs::halves;
  return load_decoder(file, compute, std::move(h), {.tied_output = true});
}

}  // namespace moetier
