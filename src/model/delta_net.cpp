#include "model/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace moetier {
namespace {

class DeltaNet final : public Mixer {
 public:
  DeltaNet(WeightBinder& binder, const HParams& h, int layer, const DeltaShape& shape)
      : shape_(shape), rms_eps_(h.rms_eps) {
    const auto name = [layer](std::string_view tensor) { return layer_tensor(layer, tensor); };
    const int64_t heads = shape.value_heads;
    norm_ = binder.vector(name("attn_norm.weight"), h.width);
    if (binder.has(name("ssm_in.weight"))) {
      bind_joined_input(bind_linear(binder, layer, "ssm_in", h.width, shape.channels() + shape.values()));
    } else {
      add_input(bind_linear(binder, layer, "attn_qkv", h.width, shape.channels()), Target::mixed, 0);
      add_input(bind_linear(binder, layer, "attn_gate", h.width, shape.values()), Target::gate, 0);
    }
    if (shape.joined_gates) {
      bind_joined_gates(bind_linear(binder, layer, "ssm_ba", h.width, 2 * heads));
    } else {
      add_input(bind_linear(binder, layer, "ssm_beta", h.width, heads), Target::step, 0);
      add_input(bind_linear(binder, layer, "ssm_alpha", h.width, heads), Target::decay, 0);
    }
    kernel_ = binder.transposed(name("ssm_conv1d.weight"), shape.taps, shape.channels());
    bias_ = binder.vector(name("ssm_dt.bias"), heads);
    factor_ = binder.vector(name("ssm_a"), heads);
    head_norm_ = binder.vector(name("ssm_norm.weight"), shape.head_length);
    output_ = bind_linear(binder, layer, "ssm_out", shape.values(), h.width);
    // With it, the RMS norm of a head is its vector over its length.
    unit_ =
        binder.constant(shape.head_length, static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_length))));
  }

  void plan(ScratchPlan& plan) const override {
    plan.need(ScratchPart::normed, norm_.shape[0]);
    plan.need(ScratchPart::mixed, shape_.channels());
    plan.need(ScratchPart::mix_gate, shape_.values());
    plan.need(ScratchPart::step, shape_.value_heads);
    plan.need(ScratchPart::decay, shape_.value_heads);
    plan.need(ScratchPart::query, shape_.keys());
    plan.need(ScratchPart::key, shape_.keys());
    plan.need(ScratchPart::value, shape_.values());
    plan.need(ScratchPart::attended, shape_.values());
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1], d = shape_.head_length, keys = shape_.keys(), values = shape_.values();
    const RecurrentLayer& memory = pass.recurrent[static_cast<size_t>(layer)];
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const std::array<Tensor, 4> targets{pass.scratch.get(ScratchPart::mixed, shape_.channels(), n),
                                        pass.scratch.get(ScratchPart::mix_gate, values, n),
                                        pass.scratch.get(ScratchPart::step, shape_.value_heads, n),
                                        pass.scratch.get(ScratchPart::decay, shape_.value_heads, n)};
    compute.rms_norm(x, norm_, rms_eps_, normed);
    project(compute, normed, targets);

    const Tensor q = pass.scratch.get(ScratchPart::query, keys, n), k = pass.scratch.get(ScratchPart::key, keys, n);
    const Tensor v = pass.scratch.get(ScratchPart::value, values, n);
    const Tensor out = pass.scratch.get(ScratchPart::attended, values, n);
    int64_t channel = 0;
    for (const Tensor& part : {q, k, v}) {
      const int64_t width = part.shape[0];
      compute.causal_conv(targets[0].slice_columns(channel, width),
                          {.weight = kernel_.slice_columns(channel, width), .silu = true}, pass.rows,
                          memory.inputs.slice_columns(channel, width), part);
      channel += width;
    }
    const Tensor q_heads = q.reshaped({d, shape_.key_heads, n, 1}), k_heads = k.reshaped({d, shape_.key_heads, n, 1});
    const Tensor heads = out.reshaped({d, shape_.value_heads, n, 1});
    const float eps = rms_eps_ / static_cast<float>(d);
    compute.rms_norm(q_heads, unit_, eps, q_heads);
    compute.rms_norm(k_heads, unit_, eps, k_heads);
    compute.delta_rule({.query = q_heads,
                        .key = k_heads,
                        .value = v.reshaped(heads.shape),
                        .decay = targets[3],
                        .step = targets[2],
                        .bias = bias_,
                        .factor = factor_,
                        .tiled = shape_.tiled},
                       pass.rows, memory.state, heads);
    compute.rms_norm(heads, head_norm_, rms_eps_, heads);
    compute.glu(Activation::silu, targets[1], out, out);
    apply(compute, output_, out, normed);
    compute.add(x, normed, x);
  }

 private:
  enum class Target : uint8_t { mixed, gate, step, decay };
  /// Rows of a projection that go to columns of a scratch tensor.
  struct Input {
    Linear rows;
    Target target = Target::mixed;
    int64_t column = 0;
  };

  void add_input(const Linear& rows, Target target, int64_t column) { inputs_.push_back({rows, target, column}); }
  void add_rows(const Linear& all, int64_t first, int64_t n, Target target, int64_t column) {
    add_input(
        {all.weight.slice_rows(first, n), all.bias.empty() ? Tensor{} : all.bias.slice_columns(first, n), all.scale},
        target, column);
  }

  /// An older form: for each key head its query, its key, the values that share it and their gates.
  void bind_joined_input(const Linear& all) {
    const int64_t d = shape_.head_length, shared = d * (shape_.value_heads / shape_.key_heads);
    for (int64_t h = 0, row = 0; h < shape_.key_heads; ++h, row += 2 * (d + shared)) {
      add_rows(all, row, d, Target::mixed, h * d);
      add_rows(all, row + d, d, Target::mixed, shape_.keys() + h * d);
      add_rows(all, row + 2 * d, shared, Target::mixed, 2 * shape_.keys() + h * shared);
      add_rows(all, row + 2 * d + shared, shared, Target::gate, h * shared);
    }
  }
  void bind_joined_gates(const Linear& all) {
    const int64_t shared = shape_.value_heads / shape_.key_heads;
    for (int64_t h = 0; h < shape_.key_heads; ++h) {
      add_rows(all, 2 * h * shared, shared, Target::step, h * shared);
      add_rows(all, (2 * h + 1) * shared, shared, Target::decay, h * shared);
    }
  }

  void project(Compute& compute, const Tensor& normed, const std::array<Tensor, 4>& targets) const {
    std::array<MatmulTerm, kMostInputs> terms;
    for (size_t first = 0; first < inputs_.size(); first += kMostInputs) {
      const size_t n = std::min(kMostInputs, inputs_.size() - first);
      for (size_t i = 0; i < n; ++i) {
        const Input& input = inputs_[first + i];
        const Tensor& target = targets[static_cast<size_t>(input.target)];
        terms[i] = input.rows.to(target.slice_columns(input.column, input.rows.weight.shape[1]));
      }
      compute.matmul(normed, std::span(terms.data(), n));
    }
  }

  static constexpr size_t kMostInputs = 128;
  DeltaShape shape_;
  float rms_eps_;
  Tensor norm_, kernel_, bias_, factor_, head_norm_, unit_;
  std::vector<Input> inputs_;
  Linear output_;
};

/// Which layers are recurrent.
std::vector<bool> recurrent_layers(const GgufFile& file, const HParams& h) {
  const std::string name = h.architecture + ".attention.recurrent_layers";
  const auto listed = file.get_ints(name);
  const int64_t interval = read_count(file, "full_attention_interval", 1, kMaxLayers, 4);
  if (listed && listed->size() < static_cast<size_t>(h.layers))
    fail("{}: {} has {} values for {} layers", file.path(), name, listed->size(), h.layers);
  std::vector<bool> recurrent;
  for (int i = 0; i < h.layers; ++i)
    recurrent.push_back(listed ? (*listed)[static_cast<size_t>(i)] != 0 : (i + 1) % interval != 0);
  return recurrent;
}

}  // namespace

DeltaShape read_delta_shape(const GgufFile& file, HParams& h) {
  DeltaShape shape;
  shape.taps = need_count(file, "ssm.conv_kernel", 2, 16);
  shape.head_length = need_count(file, "ssm.state_size", 16, 1024);
  shape.key_heads = need_count(file, "ssm.group_count", 1, kMaxHeads);
  shape.value_heads = need_count(file, "ssm.time_step_rank", 1, kMaxHeads);
  const int64_t inner = need_count(file, "ssm.inner_size", 1, kMaxWidth);
  if (shape.head_length % 16 != 0)
    fail("{}: {}.ssm.state_size is {}, but it must be a multiple of 16", file.path(), h.architecture,
         shape.head_length);
  if (inner != shape.values())
    fail("{}: {}.ssm.inner_size is {}, but {} heads (ssm.time_step_rank) of {} (ssm.state_size) make {}", file.path(),
         h.architecture, inner, shape.value_heads, shape.head_length, shape.values());
  if (shape.value_heads % shape.key_heads != 0)
    fail("{}: {}.ssm.group_count is {}, but {} value heads (ssm.time_step_rank) cannot share so many key heads evenly",
         file.path(), h.architecture, shape.key_heads, shape.value_heads);
  const RecurrentShape remembered{shape.channels(), shape.taps - 1, shape.head_length, shape.head_length,
                                  shape.value_heads};
  for (const bool recurrent : recurrent_layers(file, h)) {
    h.recurrent.push_back(recurrent ? remembered : RecurrentShape{});
    h.kv_shapes.push_back(recurrent ? KvShape{} : KvShape{h.kv_heads, h.key_length, h.value_length});
  }
  // The parts that attention layers use, too, are as wide as the wider kind needs.
  const int64_t q = h.heads * h.key_length, k = h.kv_heads * h.key_length, v = h.kv_heads * h.value_length;
  h.mixer_floats = std::max(shape.channels(), 2 * q) + shape.values() + 2 * shape.value_heads +
                   std::max(shape.keys(), q) + std::max(shape.keys(), k) + std::max(shape.values(), v) +
                   std::max(shape.values(), h.heads * h.value_length);
  return shape;
}

std::unique_ptr<Mixer> bind_delta_net(WeightBinder& binder, const HParams& hparams, int layer,
                                      const DeltaShape& shape) {
  return std::make_unique<DeltaNet>(binder, hparams, layer, shape);
}

}  // namespace moetier
