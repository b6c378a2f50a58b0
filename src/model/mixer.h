// What mixes positions in a layer: attention, in whichever form a family has it.
#pragma once

#include "compute/tensor.h"
#include "model/model.h"
#include "model/scratch.h"

namespace moetier {

/// The first half of a layer: x += mix(norm(x)).
class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Says what scratch run() needs.
  virtual void plan(ScratchPlan& plan) const = 0;
  /// x [width, n], of one ubatch; `layer` chooses what is remembered of earlier positions.
  virtual void run(const Pass& pass, int layer, const Tensor& x) const = 0;
};

}  // namespace moetier
