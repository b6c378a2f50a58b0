#include "model/streams.h"

namespace moetier {

void StreamMix::plan(ScratchPlan& plan) const {
  plan.need(ScratchPart::streams, mix.weight.shape[0]);
  plan.need(ScratchPart::stream_in, numbers());
  plan.need(ScratchPart::stream_weights, numbers());
}

void StreamMix::join(const Pass& pass, const Tensor& x, const Tensor& weights, const Tensor& joined) const {
  Compute& compute = pass.compute;
  const int64_t n = x.shape[1];
  const Tensor normed = pass.scratch.get(ScratchPart::streams, x.shape[0], n);
  const Tensor mixed = pass.scratch.get(ScratchPart::stream_in, numbers(), n);
  compute.rms_norm(x, {}, rms_eps, normed);
  apply(compute, mix, normed, mixed);
  compute.stream_weights(params, mixed, weights);
  compute.join_streams(params, x, weights, joined);
}

StreamMix bind_streams(WeightBinder& binder, const HParams& h, const std::string& name, bool spreads,
                       const StreamParams& params) {
  const int64_t numbers = spreads ? params.streams * (2 + params.streams) : params.streams;
  StreamMix result;
  result.params = params;
  result.rms_eps = h.rms_eps;
  const std::string weight = name + "_fn.weight";
  result.mix = {binder.matrix(weight, h.residual_width(), numbers), {}, binder.scale(weight)};
  result.params.base = binder.vector(name + "_base.weight", numbers);
  result.params.scale = binder.vector(name + "_scale.weight", spreads ? 3 : 1);
  return result;
}

}  // namespace moetier
