// The building blocks that families are made of. Each adds its result to the residual stream: x += block(norm(x)).
//
// A block holds its own sizes, so layers of one model may differ. bind_*() reads a layer's tensors, plan() says what
// scratch the block needs, run() issues its operations.
#pragma once

#include <algorithm>
#include <string>

#include "compute/compute.h"
#include "model/hparams.h"
#include "model/mixer.h"
#include "model/model.h"
#include "model/scratch.h"
#include "model/weights.h"
#include "moe/moe.h"

namespace moetier {

/// How queries and keys are normalized before rotation.
enum class QkNorm : uint8_t {
  none,
  per_head,  ///< each head by itself, one weight [key_length] for all heads
  plain,     ///< each head by itself, without a weight
  whole,     ///< the whole projected vector, weight [heads * key_length]
};

/// Whether a family's files have a tensor.
enum class Presence : uint8_t { none, optional, required };

/// What distinguishes one family's attention from another's.
struct AttentionTraits {
  QkNorm qk_norm = QkNorm::none;
  bool norm_after_rope = false;  ///< queries and keys are rotated first, then normalized
  bool output_bias = false;      ///< `attn_output.bias` must be there; else it may be
  bool norm_bias = false;        ///< `attn_norm.bias`
  bool sinks = false;            ///< `attn_sinks.weight`
  bool gated = false;            ///< what attention gives is multiplied by sigmoids, which come with the queries
  bool rotated = true;
  int64_t chunk = 0;                   ///< AttentionParams::chunk
  TemperatureParams temperature = {};  ///< of queries
};

/// An expert that every token passes through.
enum class SharedForm : uint8_t {
  none,
  gated,  ///< scaled by a sigmoid of its own projection (`ffn_gate_inp_shexp`)
  plain,
};

/// What distinguishes one family's experts from another's.
struct MoeTraits {
  Gating gating = Gating::softmax;
  bool normalize = false;  ///< the picks' weights sum to one
  float scale = 1.0f;      ///< then they are multiplied by this
  Activation activation = Activation::silu;
  bool gated = true;                         ///< else experts, and the shared one, have no gate
  bool by_logits = false;                    ///< RouteParams::by_logits
  bool weigh_input = false;                  ///< ExpertFfn::weigh_input
  bool router_bias = false;                  ///< `ffn_gate_inp.bias`
  bool expert_biases = false;                ///< `ffn_{gate,up,down}_exps.bias`
  Presence selection_bias = Presence::none;  ///< `exp_probs_b.bias`
  SharedForm shared = SharedForm::none;
  float limit = 0.0f, shared_limit = 0.0f;  ///< ExpertFfn::limit, and the shared expert's
  int64_t latent_width = 0;  ///< experts see `ffn_latent_down` of a row, so wide, and `ffn_latent_up` brings it back
};

/// A weight, its optional bias, and the factor of its products (before the bias).
struct Linear {
  Tensor weight, bias = {};
  float scale = 1.0f;

  MatmulTerm to(const Tensor& out) const { return {weight, out, bias, scale}; }
};

/// Runs one weight on x.
void apply(Compute& compute, const Linear& linear, const Tensor& x, const Tensor& out);
/// x += factor * result, which is overwritten.
void add_to_residual(Compute& compute, float factor, const Tensor& result, const Tensor& x);
/// A layer's weight with its optional bias and scale, by its name without `blk.N.` and `.weight`.
Linear bind_linear(WeightBinder& binder, int layer, std::string_view name, int64_t columns, int64_t rows);

/// Causal attention over the KV cache, heads in equal groups.
struct AttentionBlock final : Mixer {
  int heads = 0, kv_heads = 0;
  int64_t key_length = 0, value_length = 0;
  float rms_eps = 0;
  float residual_scale = 1.0f;
  QkNorm qk_norm = QkNorm::none;
  bool norm_after_rope = false;
  bool gated = false;  ///< `query` gives for each head its query, then its gate
  RopePairs rope_pairs = RopePairs::halves;
  int64_t rope_dims = 0;  ///< 0 = queries and keys are not rotated
  AttentionParams params;
  TemperatureParams temperature;
  Tensor norm, norm_bias = {}, query_norm = {}, key_norm = {};
  Linear query, key, value, output;

  void plan(ScratchPlan& plan) const override;
  void run(const Pass& pass, int layer, const Tensor& x) const override;

 private:
  void rotate(const Pass& pass, const Tensor& q, const Tensor& k) const;
  void normalize(Compute& compute, const Tensor& q, const Tensor& k, int64_t n) const;
};

/// down(silu(gate(x)) * up(x)) for all tokens.
struct DenseFfnBlock {
  float rms_eps = 0, residual_scale = 1.0f;
  Tensor norm;
  Linear gate, up, down;

  void plan(ScratchPlan& plan) const;
  void run(const Pass& pass, const Tensor& x) const;
};

/// An expert that every token passes through, beside the routed ones.
struct SharedExpert {
  Linear gate, up, down;  ///< empty = none
  Activation activation = Activation::silu;
  bool gated = true;       ///< else `up` by itself goes through the activation
  Tensor input_gate = {};  ///< [columns, 1]: its output is scaled by sigmoid(input_gate . x); optional
  float limit = 0.0f;      ///< as ExpertFfn::limit
};

/// Routed experts, and a shared one if there is.
struct MoeFfnBlock {
  float rms_eps = 0, residual_scale = 1.0f;
  Tensor norm, norm_bias = {};
  MoeLayer moe;
  SharedExpert shared;
  Linear latent_down = {}, latent_up = {};

  void plan(ScratchPlan& plan) const;
  void run(const Pass& pass, const Tensor& x) const;
  /// What run() adds to the residual, in scratch. `chosen`: picks that do not come from the router.
  Tensor result(const Pass& pass, const Tensor& x, const Tensor& chosen = {}) const;

 private:
  void add_shared(const Pass& pass, const Tensor& normed, const Tensor& out) const;
};

/// Calls body(first, n) for parts of `rows` rows that fit an ubatch's scratch.
template <typename Body>
void for_parts(const Pass& pass, int64_t rows, Body body) {
  const int64_t most = pass.scratch.max_rows();
  for (int64_t first = 0; first < rows; first += most) body(first, std::min(most, rows - first));
}

/// The rotary table [dims, n] of an ubatch's rows.
Tensor rope_rows(const Pass& pass, int64_t dims, int64_t n);

/// The name of a layer's tensor: `blk.N.` + name.
std::string layer_tensor(int layer, std::string_view name);

/// Sizes from the hyperparameters. QKV fused (`attn_qkv`) or separate; biases of all projections are optional.
AttentionBlock bind_attention(WeightBinder& binder, const HParams& hparams, int layer, const AttentionTraits& traits);
/// `norm` is the name of the layer's norm before it.
DenseFfnBlock bind_dense_ffn(WeightBinder& binder, const HParams& hparams, int layer, std::string_view norm);
/// Experts fused (`ffn_gate_up_exps`) or separate.
MoeFfnBlock bind_moe_ffn(WeightBinder& binder, const HParams& hparams, int layer, std::string_view norm,
                         const MoeTraits& traits);

}  // namespace moetier
