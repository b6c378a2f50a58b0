#include "model/mamba.h"

#include <array>

#include "base/error.h"

namespace moetier {
namespace {

class Mamba final : public Mixer {
 public:
  Mamba(WeightBinder& binder, const HParams& h, int layer, const MambaShape& shape)
      : shape_(shape), rms_eps_(h.rms_eps) {
    const auto name = [layer](std::string_view tensor) { return layer_tensor(layer, tensor); };
    const auto per_head = [&](std::string_view tensor) {
      return binder.floats(name(tensor), 1, shape.heads).reshaped({shape.heads, 1, 1, 1});
    };
    norm_ = binder.vector(name("attn_norm.weight"), h.width);
    const int64_t channels = shape.channels();
    const Linear all = bind_linear(binder, layer, "ssm_in", h.width, shape.inner + channels + shape.heads);
    const auto rows = [&](int64_t first, int64_t n) {
      return Linear{all.weight.slice_rows(first, n), all.bias.empty() ? Tensor{} : all.bias.slice_columns(first, n),
                    all.scale};
    };
    gate_ = rows(0, shape.inner);
    input_ = rows(shape.inner, channels);
    step_ = rows(shape.inner + channels, shape.heads);
    kernel_ = binder.transposed(name("ssm_conv1d.weight"), shape.taps, channels);
    kernel_bias_ = binder.vector(name("ssm_conv1d.bias"), channels);
    step_bias_ = binder.vector(name("ssm_dt.bias"), shape.heads);
    factor_ = per_head("ssm_a");
    skip_ = per_head("ssm_d");
    group_norm_ = binder.floats(name("ssm_norm.weight"), shape.inner / shape.groups, shape.groups);
    output_ = bind_linear(binder, layer, "ssm_out", shape.inner, h.width);
  }

  void plan(ScratchPlan& plan) const override {
    plan.need(ScratchPart::normed, norm_.shape[0]);
    plan.need(ScratchPart::mixed, shape_.channels());
    plan.need(ScratchPart::mix_gate, shape_.inner);
    plan.need(ScratchPart::step, shape_.heads);
    plan.need(ScratchPart::value, shape_.inner);
    plan.need(ScratchPart::key, shape_.grouped());
    plan.need(ScratchPart::query, shape_.grouped());
    plan.need(ScratchPart::attended, shape_.inner);
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1], grouped = shape_.grouped(), rows = shape_.inner / shape_.heads;
    const RecurrentLayer& memory = pass.recurrent[static_cast<size_t>(layer)];
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const Tensor mixed = pass.scratch.get(ScratchPart::mixed, shape_.channels(), n);
    const Tensor gate = pass.scratch.get(ScratchPart::mix_gate, shape_.inner, n);
    const Tensor step = pass.scratch.get(ScratchPart::step, shape_.heads, n);
    compute.rms_norm(x, norm_, rms_eps_, normed);
    const std::array<MatmulTerm, 3> terms{gate_.to(gate), input_.to(mixed), step_.to(step)};
    compute.matmul(normed, terms);

    const Tensor inputs = pass.scratch.get(ScratchPart::value, shape_.inner, n);
    const Tensor b = pass.scratch.get(ScratchPart::key, grouped, n),
                 c = pass.scratch.get(ScratchPart::query, grouped, n);
    const Tensor out = pass.scratch.get(ScratchPart::attended, shape_.inner, n);
    int64_t channel = 0;
    for (const Tensor& part : {inputs, b, c}) {
      const int64_t width = part.shape[0];
      compute.causal_conv(mixed.slice_columns(channel, width),
                          {.weight = kernel_.slice_columns(channel, width),
                           .bias = kernel_bias_.slice_columns(channel, width),
                           .silu = true},
                          pass.rows, memory.inputs.slice_columns(channel, width), part);
      channel += width;
    }
    compute.scan({.x = inputs.reshaped({rows, shape_.heads, n, 1}),
                  .b = b.reshaped({shape_.state, shape_.groups, n, 1}),
                  .c = c.reshaped({shape_.state, shape_.groups, n, 1}),
                  .step = step,
                  .bias = step_bias_,
                  .factor = factor_,
                  .skip = skip_},
                 pass.rows, memory.state, out.reshaped({rows, shape_.heads, n, 1}));
    compute.glu(Activation::silu, gate, out, out);
    const Tensor by_group = out.reshaped({shape_.inner / shape_.groups, shape_.groups, n, 1});
    compute.rms_norm(by_group, group_norm_, rms_eps_, by_group);
    apply(compute, output_, out, normed);
    compute.add(x, normed, x);
  }

 private:
  MambaShape shape_;
  float rms_eps_;
  Tensor norm_, kernel_, kernel_bias_, step_bias_, factor_, skip_, group_norm_;
  Linear gate_, input_, step_, output_;
};

}  // namespace

MambaShape read_mamba_shape(const GgufFile& file, const HParams& h) {
  MambaShape shape;
  shape.taps = need_count(file, "ssm.conv_kernel", 2, 16);
  shape.inner = need_count(file, "ssm.inner_size", 1, kMaxWidth);
  shape.state = need_count(file, "ssm.state_size", 16, 1024);
  shape.heads = need_count(file, "ssm.time_step_rank", 1, kMaxHeads);
  shape.groups = need_count(file, "ssm.group_count", 1, kMaxHeads);
  if (shape.state % 16 != 0)
    fail("{}: {}.ssm.state_size is {}, but it must be a multiple of 16", file.path(), h.architecture, shape.state);
  if (shape.inner % shape.heads != 0)
    fail("{}: {}.ssm.inner_size is {}, which {} heads (ssm.time_step_rank) cannot share evenly", file.path(),
         h.architecture, shape.inner, shape.heads);
  if (shape.heads % shape.groups != 0)
    fail("{}: {}.ssm.group_count is {}, but {} heads (ssm.time_step_rank) cannot share so many groups evenly",
         file.path(), h.architecture, shape.groups, shape.heads);
  return shape;
}

RecurrentShape remembered(const MambaShape& shape) {
  return {shape.channels(), shape.taps - 1, shape.state, shape.inner / shape.heads, shape.heads};
}

std::unique_ptr<Mixer> bind_mamba(WeightBinder& binder, const HParams& hparams, int layer, const MambaShape& shape) {
  return std::make_unique<Mamba>(binder, hparams, layer, shape);
}

}  // namespace moetier
