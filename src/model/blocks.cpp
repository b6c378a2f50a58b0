#include "model/blocks.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace moetier {
namespace {

int64_t outputs(const Linear& linear) {
  return linear.weight.shape[1];
}

/// Rows [first, first + n) of a fused projection.
Linear slice(const Linear& fused, int64_t first, int64_t n) {
  return {fused.weight.slice_rows(first, n), fused.bias.empty() ? Tensor{} : fused.bias.slice_columns(first, n),
          fused.scale};
}

}  // namespace

void apply(Compute& compute, const Linear& linear, const Tensor& x, const Tensor& out) {
  const MatmulTerm term = linear.to(out);
  compute.matmul(x, std::span(&term, 1));
}

void add_to_residual(Compute& compute, float factor, const Tensor& result, const Tensor& x) {
  if (factor != 1.0f) compute.scale(factor, result, result);
  compute.add(x, result, x);
}

Linear bind_linear(WeightBinder& binder, int layer, std::string_view name, int64_t columns, int64_t rows) {
  const std::string base = layer_tensor(layer, name), weight = base + ".weight";
  return {binder.matrix(weight, columns, rows), binder.vector_if(base + ".bias", rows), binder.scale(weight)};
}

Tensor rope_rows(const Pass& pass, int64_t dims, int64_t n) {
  return pass.scratch.get(ScratchPart::rope, dims, pass.first_row + n).slice_rows(pass.first_row, n);
}

std::string layer_tensor(int layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

// --- attention ---

void AttentionBlock::plan(ScratchPlan& plan) const {
  plan.need(ScratchPart::normed, norm.shape[0]);
  plan.need(ScratchPart::query, heads * key_length);
  if (gated) plan.need(ScratchPart::mixed, 2 * heads * key_length);
  plan.need(ScratchPart::key, kv_heads * key_length);
  plan.need(ScratchPart::value, kv_heads * value_length);
  plan.need(ScratchPart::attended, heads * value_length);
  plan.need(ScratchPart::rope, rope_dims);
}

void AttentionBlock::rotate(const Pass& pass, const Tensor& q, const Tensor& k) const {
  if (rope_dims == 0) return;
  const Tensor table = rope_rows(pass, rope_dims, q.shape[2]);
  pass.compute.rope(q, table, rope_pairs);
  pass.compute.rope(k, table, rope_pairs);
}

void AttentionBlock::run(const Pass& pass, int layer, const Tensor& x) const {
  Compute& compute = pass.compute;
  const int64_t n = x.shape[1];
  const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
  const Tensor q = pass.scratch.get(ScratchPart::query, heads * key_length, n);
  const Tensor k = pass.scratch.get(ScratchPart::key, kv_heads * key_length, n);
  const Tensor v = pass.scratch.get(ScratchPart::value, kv_heads * value_length, n);
  const Tensor attended = pass.scratch.get(ScratchPart::attended, heads * value_length, n);
  compute.rms_norm(x, norm, rms_eps, normed);
  if (!norm_bias.empty()) compute.add(normed, norm_bias, normed);
  Tensor both = q, queries = q, gates;
  if (gated) {
    both = pass.scratch.get(ScratchPart::mixed, 2 * heads * key_length, n);
    const Tensor by_head = both.reshaped({2 * key_length, heads, n, 1});
    queries = by_head.slice_columns(0, key_length);
    gates = by_head.slice_columns(key_length, key_length);
  }
  const std::array<MatmulTerm, 3> terms{query.to(both), key.to(k), value.to(v)};
  compute.matmul(normed, terms);

  const Tensor q_heads = q.reshaped({key_length, heads, n, 1});
  const Tensor k_heads = k.reshaped({key_length, kv_heads, n, 1});
  if (gated) compute.scale(1.0f, queries, q_heads);
  if (!norm_after_rope) normalize(compute, q, k, n);
  rotate(pass, q_heads, k_heads);
  if (norm_after_rope) normalize(compute, q, k, n);
  if (temperature.scale != 0.0) compute.temperature(temperature, pass.rows.positions, q_heads);

  const KvLayer& kv = pass.kv[static_cast<size_t>(layer)];
  compute.store_kv(k_heads, v.reshaped({value_length, kv_heads, n, 1}), pass.rows, kv);
  compute.attention(q_heads, pass.rows, kv, params, attended.reshaped({value_length, heads, n, 1}));
  if (gated) {
    const Tensor results = attended.reshaped({value_length, heads, n, 1});
    compute.glu(Activation::sigmoid, gates, results, results);
  }
  apply(compute, output, attended, normed);
  add_to_residual(compute, residual_scale, normed, x);
}

void AttentionBlock::normalize(Compute& compute, const Tensor& q, const Tensor& k, int64_t n) const {
  if (qk_norm == QkNorm::none) return;
  const bool whole = qk_norm == QkNorm::whole;
  const Tensor qs = whole ? q : q.reshaped({key_length, heads, n, 1});
  const Tensor ks = whole ? k : k.reshaped({key_length, kv_heads, n, 1});
  compute.rms_norm(qs, query_norm, rms_eps, qs);
  compute.rms_norm(ks, key_norm, rms_eps, ks);
}

AttentionBlock bind_attention(WeightBinder& binder, const HParams& h, int layer, const AttentionTraits& traits) {
  const auto name = [layer](std::string_view tensor) { return layer_tensor(layer, tensor); };
  AttentionBlock block;
  block.heads = h.heads;
  block.kv_heads = h.kv_heads;
  block.key_length = h.key_length;
  block.value_length = h.value_length;
  block.rms_eps = h.rms_eps;
  block.residual_scale = h.residual_scale;
  block.qk_norm = traits.qk_norm;
  block.norm_after_rope = traits.norm_after_rope;
  block.gated = traits.gated;
  block.rope_pairs = h.rope_pairs;
  block.rope_dims = traits.rotated ? h.rope.dims : 0;
  block.params.scale = h.attention_scale != 0.0f
                           ? h.attention_scale
                           : static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.key_length)));
  block.params.window = h.window(layer);
  block.params.chunk = traits.chunk;
  block.temperature = traits.temperature;
  if (traits.sinks) block.params.sinks = binder.vector(name("attn_sinks.weight"), h.heads);
  block.norm = binder.vector(name("attn_norm.weight"), h.width);
  if (traits.norm_bias) block.norm_bias = binder.vector(name("attn_norm.bias"), h.width);

  const int64_t q = h.heads * h.key_length * (traits.gated ? 2 : 1);
  const int64_t k = h.kv_heads * h.key_length;
  const int64_t v = h.kv_heads * h.value_length;
  if (binder.has(name("attn_qkv.weight"))) {
    const Linear fused{binder.matrix(name("attn_qkv.weight"), h.width, q + k + v),
                       binder.vector_if(name("attn_qkv.bias"), q + k + v), binder.scale(name("attn_qkv.weight"))};
    block.query = slice(fused, 0, q);
    block.key = slice(fused, q, k);
    block.value = slice(fused, q + k, v);
  } else {
    block.query.weight = binder.matrix(name("attn_q.weight"), h.width, q);
    block.key.weight = binder.matrix(name("attn_k.weight"), h.width, k);
    block.value.weight = binder.matrix(name("attn_v.weight"), h.width, v);
    block.query.scale = binder.scale(name("attn_q.weight"));
    block.key.scale = binder.scale(name("attn_k.weight"));
    block.value.scale = binder.scale(name("attn_v.weight"));
  }
  if (block.query.bias.empty()) {
    block.query.bias = binder.vector_if(name("attn_q.bias"), q);
    block.key.bias = binder.vector_if(name("attn_k.bias"), k);
    block.value.bias = binder.vector_if(name("attn_v.bias"), v);
  }
  block.output = {binder.matrix(name("attn_output.weight"), h.heads * h.value_length, h.width),
                  traits.output_bias ? binder.vector(name("attn_output.bias"), h.width)
                                     : binder.vector_if(name("attn_output.bias"), h.width),
                  binder.scale(name("attn_output.weight"))};
  if (traits.qk_norm == QkNorm::per_head || traits.qk_norm == QkNorm::whole) {
    const bool whole = traits.qk_norm == QkNorm::whole;
    block.query_norm = binder.vector(name("attn_q_norm.weight"), whole ? h.heads * h.key_length : h.key_length);
    block.key_norm = binder.vector(name("attn_k_norm.weight"), whole ? k : h.key_length);
  }
  return block;
}

// --- dense FFN ---

void DenseFfnBlock::plan(ScratchPlan& plan) const {
  plan.need(ScratchPart::normed, norm.shape[0]);
  plan.need(ScratchPart::gate, outputs(gate));
  plan.need(ScratchPart::up, outputs(up));
  plan.need(ScratchPart::ffn_out, outputs(down));
}

void DenseFfnBlock::run(const Pass& pass, const Tensor& all) const {
  Compute& compute = pass.compute;
  for_parts(pass, all.shape[1], [&](int64_t first, int64_t n) {
    const Tensor x = all.slice_rows(first, n);
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const Tensor g = pass.scratch.get(ScratchPart::gate, outputs(gate), n);
    const Tensor u = pass.scratch.get(ScratchPart::up, outputs(up), n);
    const Tensor out = pass.scratch.get(ScratchPart::ffn_out, outputs(down), n);
    compute.rms_norm(x, norm, rms_eps, normed);
    const std::array<MatmulTerm, 2> terms{gate.to(g), up.to(u)};
    compute.matmul(normed, terms);
    compute.glu(Activation::silu, g, u, g);
    apply(compute, down, g, out);
    add_to_residual(compute, residual_scale, out, x);
  });
}

DenseFfnBlock bind_dense_ffn(WeightBinder& binder, const HParams& h, int layer, std::string_view norm) {
  DenseFfnBlock block;
  block.rms_eps = h.rms_eps;
  block.residual_scale = h.residual_scale;
  block.norm = binder.vector(layer_tensor(layer, norm), h.width);
  block.gate = bind_linear(binder, layer, "ffn_gate", h.width, h.ffn_width);
  block.up = bind_linear(binder, layer, "ffn_up", h.width, h.ffn_width);
  block.down = bind_linear(binder, layer, "ffn_down", h.ffn_width, h.width);
  return block;
}

// --- experts ---

void MoeFfnBlock::plan(ScratchPlan& plan) const {
  plan.need(ScratchPart::moe_in, norm.shape[0]);
  plan.need(ScratchPart::moe_out, norm.shape[0]);
  if (!latent_down.weight.empty()) {
    plan.need(ScratchPart::latent_in, moe.ffn.columns);
    plan.need(ScratchPart::latent_out, moe.ffn.columns);
  }
  if (shared.up.weight.empty()) return;
  if (shared.gated) plan.need(ScratchPart::gate, outputs(shared.gate));
  plan.need(ScratchPart::up, outputs(shared.up));
  plan.need(ScratchPart::shared_out, outputs(shared.down));
  if (!shared.input_gate.empty()) plan.need(ScratchPart::shared_gate, 1);
}

/// out += the shared expert of normed, for rows that fit an ubatch's scratch.
void MoeFfnBlock::add_shared(const Pass& pass, const Tensor& normed, const Tensor& out) const {
  Compute& compute = pass.compute;
  const int64_t n = normed.shape[1];
  const Tensor u = pass.scratch.get(ScratchPart::up, outputs(shared.up), n);
  const Tensor g = shared.gated ? pass.scratch.get(ScratchPart::gate, outputs(shared.gate), n) : u;
  const Tensor shared_out = pass.scratch.get(ScratchPart::shared_out, normed.shape[0], n);
  const bool scaled = !shared.input_gate.empty();
  std::array<MatmulTerm, 3> terms{shared.up.to(u)};
  size_t n_terms = 1;
  if (shared.gated) terms[n_terms++] = shared.gate.to(g);
  if (scaled) terms[n_terms++] = {shared.input_gate, pass.scratch.get(ScratchPart::shared_gate, 1, n)};
  compute.matmul(normed, std::span(terms.data(), n_terms));
  if (shared.limit > 0) {
    compute.clamp(-std::numeric_limits<float>::infinity(), shared.limit, g, g);
    compute.clamp(-shared.limit, shared.limit, u, u);
  }
  compute.glu(shared.activation, g, u, g);
  apply(compute, shared.down, g, shared_out);
  if (scaled) compute.sigmoid_gate(terms[n_terms - 1].out, shared_out, shared_out);
  compute.add(out, shared_out, out);
}

void MoeFfnBlock::run(const Pass& pass, const Tensor& x) const {
  add_to_residual(pass.compute, residual_scale, result(pass, x), x);
}

Tensor MoeFfnBlock::result(const Pass& pass, const Tensor& x, const Tensor& chosen) const {
  if (pass.moe == nullptr) fail("layer {} has experts, but the pass was given no MoE operation", moe.layer);
  Compute& compute = pass.compute;
  const int64_t n = x.shape[1];
  const Tensor normed = pass.scratch.get(ScratchPart::moe_in, x.shape[0], n);
  const Tensor out = pass.scratch.get(ScratchPart::moe_out, x.shape[0], n);
  compute.rms_norm(x, norm, rms_eps, normed);
  if (!norm_bias.empty()) compute.add(normed, norm_bias, normed);
  if (latent_down.weight.empty()) {
    pass.moe->run(moe, normed, normed, out, chosen);
  } else {
    const Tensor in = pass.scratch.get(ScratchPart::latent_in, moe.ffn.columns, n);
    const Tensor latent_out = pass.scratch.get(ScratchPart::latent_out, moe.ffn.columns, n);
    apply(compute, latent_down, normed, in);
    pass.moe->run(moe, in, normed, latent_out, chosen);
    apply(compute, latent_up, latent_out, out);
  }
  if (!shared.up.weight.empty()) {
    for_parts(pass, n, [&](int64_t first, int64_t rows) {
      add_shared(pass, normed.slice_rows(first, rows), out.slice_rows(first, rows));
    });
  }
  return out;
}

namespace {

/// The stacks of a layer's experts, their types, scales and biases. Experts see rows of so many columns.
void bind_experts(WeightBinder& binder, const HParams& h, const MoeTraits& traits, int64_t columns, MoeLayer& moe) {
  const auto name = [&](std::string_view tensor) { return layer_tensor(moe.layer, tensor); };
  const auto stack = [&](std::string_view tensor, int64_t in, int64_t out) {
    return binder.expert_stack(name(tensor), in, out, h.experts);
  };
  ExpertFfn& ffn = moe.ffn;
  ffn.columns = columns;
  ffn.width = h.expert_width;
  ffn.activation = traits.activation;
  ffn.gated = traits.gated;
  ffn.weigh_input = traits.weigh_input;
  ffn.limit = traits.limit;
  ffn.fused = traits.gated && binder.has(name("ffn_gate_up_exps.weight"));
  if (ffn.fused) {
    ffn.gate_type = ffn.up_type = stack("ffn_gate_up_exps.weight", columns, 2 * h.expert_width);
  } else {
    if (traits.gated) {
      ffn.gate_type = stack("ffn_gate_exps.weight", columns, h.expert_width);
      moe.scales.gate = binder.expert_scales(name("ffn_gate_exps.weight"), h.experts);
    }
    ffn.up_type = stack("ffn_up_exps.weight", columns, h.expert_width);
    moe.scales.up = binder.expert_scales(name("ffn_up_exps.weight"), h.experts);
    if (!traits.gated) {
      ffn.gate_type = ffn.up_type;
      std::swap(moe.scales.gate, moe.scales.up);
    }
  }
  moe.scales.down = binder.expert_scales(name("ffn_down_exps.weight"), h.experts);
  ffn.down_type = stack("ffn_down_exps.weight", h.expert_width, columns);
  if (!traits.expert_biases) return;
  ffn.gate_bias = binder.floats(name("ffn_gate_exps.bias"), h.expert_width, h.experts);
  ffn.up_bias = binder.floats(name("ffn_up_exps.bias"), h.expert_width, h.experts);
  ffn.down_bias = binder.floats(name("ffn_down_exps.bias"), h.width, h.experts);
}

SharedExpert bind_shared_expert(WeightBinder& binder, const HParams& h, int layer, const MoeTraits& traits) {
  const auto bind = [&](std::string_view tensor, int64_t in, int64_t out) {
    const std::string weight = layer_tensor(layer, tensor);
    return Linear{binder.matrix(weight, in, out), {}, binder.scale(weight)};
  };
  SharedExpert shared;
  shared.gated = traits.gated;
  if (!traits.gated) shared.activation = traits.activation;
  shared.limit = traits.shared_limit;
  if (traits.gated) shared.gate = bind("ffn_gate_shexp.weight", h.width, h.shared_width);
  shared.up = bind("ffn_up_shexp.weight", h.width, h.shared_width);
  shared.down = bind("ffn_down_shexp.weight", h.shared_width, h.width);
  if (traits.shared == SharedForm::gated)
    shared.input_gate = binder.matrix(layer_tensor(layer, "ffn_gate_inp_shexp.weight"), h.width, 1);
  return shared;
}

}  // namespace

MoeFfnBlock bind_moe_ffn(WeightBinder& binder, const HParams& h, int layer, std::string_view norm,
                         const MoeTraits& traits) {
  const auto name = [layer](std::string_view tensor) { return layer_tensor(layer, tensor); };
  MoeFfnBlock block;
  block.rms_eps = h.rms_eps;
  block.residual_scale = h.residual_scale;
  block.norm = binder.vector(name(norm), h.width);
  MoeLayer& moe = block.moe;
  moe.layer = layer;
  moe.router = binder.matrix(name("ffn_gate_inp.weight"), h.width, h.experts);
  if (traits.router_bias) moe.router_bias = binder.vector(name("ffn_gate_inp.bias"), h.experts);
  if (traits.selection_bias == Presence::required)
    moe.selection_bias = binder.vector(name("exp_probs_b.bias"), h.experts);
  if (traits.selection_bias == Presence::optional)
    moe.selection_bias = binder.vector_if(name("exp_probs_b.bias"), h.experts);
  moe.route.top_k = h.top_k;
  moe.route.gating = traits.gating;
  moe.route.normalize = traits.normalize;
  moe.route.scale = traits.scale;
  moe.route.by_logits = traits.by_logits;
  moe.route.groups = h.expert_groups;
  moe.route.groups_used = h.expert_groups_used;
  const int64_t columns = traits.latent_width > 0 ? traits.latent_width : h.width;
  if (traits.latent_width > 0) {
    block.latent_down = bind_linear(binder, layer, "ffn_latent_down", h.width, columns);
    block.latent_up = bind_linear(binder, layer, "ffn_latent_up", columns, h.width);
  }
  bind_experts(binder, h, traits, columns, moe);
  if (traits.shared != SharedForm::none && h.shared_width > 0)
    block.shared = bind_shared_expert(binder, h, layer, traits);
  return block;
}

}  // namespace moetier
