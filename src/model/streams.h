// Hyper-connections: several residual streams, joined before a block of a layer and spread anew behind it.
#pragma once

#include <string>

#include "model/blocks.h"

namespace moetier {

/// The weights of one block's joining and spreading, or of the head's joining. Numbers that depend on the row (from all
/// its streams, normed together) make them: Compute::stream_weights.
struct StreamMix {
  StreamParams params;
  Linear mix;
  float rms_eps = 0;

  void plan(ScratchPlan& plan) const;
  int64_t numbers() const { return mix.weight.shape[1]; }
  /// Of x [streams * width, n], n at most an ubatch's rows: weights [numbers(), n] and their joined form [width, n].
  void join(const Pass& pass, const Tensor& x, const Tensor& weights, const Tensor& joined) const;
};

/// Tensors NAME_fn, NAME_base and NAME_scale. `spreads`: a block, not the head.
StreamMix bind_streams(WeightBinder& binder, const HParams& hparams, const std::string& name, bool spreads,
                       const StreamParams& params);

}  // namespace moetier
