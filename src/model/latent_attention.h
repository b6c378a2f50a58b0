// Multi-head latent attention (DeepSeek V2): keys and values of all heads are projections of one narrow row, and that
// row is what the cache keeps.
#pragma once

#include <memory>

#include "model/blocks.h"

namespace moetier {

/// The sizes of latent attention.
struct LatentShape {
  int64_t query_rank = 0;              ///< of the narrow form of queries; 0 = they are projected at once
  int64_t rank = 0;                    ///< of the narrow row
  int64_t key_length = 0;              ///< of a head: elements that are not rotated, then those that are
  int64_t value_length = 0;            ///< of a head
  TemperatureParams temperature = {};  ///< of queries
  bool gated = false;                  ///< each head's result is multiplied by a sigmoid of `attn_gate`
  bool absorbed = true;  ///< the file has the up-projections apart, a matrix for each head, keys' transposed
};

/// Reads the keys. Sets head sizes and KV shapes of `hparams`, and checks that they fit one another.
LatentShape read_latent_shape(const GgufFile& file, HParams& hparams);

/// Binds a layer. Absorbed: queries go through their head's up-projection and meet the cached rows, one KV head for
/// all; what attention gives goes through the values' up-projection. Else keys and values are unfolded and cached.
std::unique_ptr<Mixer> bind_latent_attention(WeightBinder& binder, const HParams& hparams, int layer,
                                             const LatentShape& shape);

}  // namespace moetier
