// The gated delta net of Qwen3-Next: a recurrent layer whose state for each head is a matrix from keys to values.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"

namespace moetier {

/// The sizes of its layers.
struct DeltaShape {
  int64_t taps = 0;         ///< of the convolution
  int64_t head_length = 0;  ///< of keys and of values
  int64_t key_heads = 0, value_heads = 0;
  bool tiled = false;         ///< value head h has key head h mod key heads; else neighbours share one
  bool joined_gates = false;  ///< `ssm_ba`: for each key head its betas, then its alphas; else two matrices

  int64_t keys() const { return key_heads * head_length; }
  int64_t values() const { return value_heads * head_length; }
  int64_t channels() const { return 2 * keys() + values(); }
};

/// Reads the `ssm.*` keys, and which layers are recurrent (`attention.recurrent_layers`, or all but every
/// `full_attention_interval`th); sets `recurrent` and `kv_shapes` of `hparams`.
DeltaShape read_delta_shape(const GgufFile& file, HParams& hparams);

std::unique_ptr<Mixer> bind_delta_net(WeightBinder& binder, const HParams& hparams, int layer, const DeltaShape& shape);

}  // namespace moetier
