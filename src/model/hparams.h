// A model's hyperparameters, as its GGUF metadata gives them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/compute.h"

namespace moetier {

struct HParams {
  std::string architecture, name;
  int64_t context_length = 0;  ///< positions the model was trained for
  int64_t width = 0;           ///< embedding_length
  int layers = 0;              ///< executed layers
  int64_t vocab = 0;
  int64_t ffn_width = 0;       ///< dense FFN
  int heads = 0, kv_heads = 0;
  int64_t key_length = 0, value_length = 0;
  float rms_eps = 1e-6f;
  RopeParams rope;
  RopePairs rope_pairs = RopePairs::halves;
  int experts = 0, top_k = 0;  ///< 0 = dense model
  int64_t expert_width = 0;    ///< of a routed expert
  int64_t shared_width = 0;    ///< of the shared expert, 0 = none
};

}  // namespace moetier
