// Mamba 2: a recurrent layer whose state for each head decays by one factor and is fed by two vectors that groups of
// heads share.
#pragma once

#include <memory>

#include "model/blocks.h"

namespace moetier {

/// The sizes of its layers.
struct MambaShape {
  int64_t taps = 0;   ///< of the convolution
  int64_t inner = 0;  ///< all heads together
  int64_t state = 0;  ///< elements of a state's row
  int64_t heads = 0, groups = 0;

  int64_t grouped() const { return state * groups; }
  int64_t channels() const { return inner + 2 * grouped(); }
};

/// Reads the `ssm.*` keys.
MambaShape read_mamba_shape(const GgufFile& file, const HParams& hparams);
/// What such a layer remembers.
RecurrentShape remembered(const MambaShape& shape);

std::unique_ptr<Mixer> bind_mamba(WeightBinder& binder, const HParams& hparams, int layer, const MambaShape& shape);

}  // namespace moetier
