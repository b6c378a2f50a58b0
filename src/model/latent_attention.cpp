#include "model/latent_attention.h"

#include <array>
#include <vector>

#include "base/error.h"

namespace moetier {
namespace {

/// One matrix for each head, and the factor of its products.
struct HeadMatrices {
  Tensor weight;
  float scale = 1.0f;
};

HeadMatrices bind_heads(WeightBinder& binder, int layer, std::string_view name, int64_t columns, int64_t rows,
                        int64_t heads) {
  const std::string weight = layer_tensor(layer, name) + ".weight";
  return {binder.stack(weight, columns, rows, heads), binder.scale(weight)};
}

/// The same rows, as one head of each row.
Tensor one_head(Tensor rows) {
  rows.shape = {rows.shape[0], 1, rows.shape[1], 1};
  return rows;
}

class LatentAttention final : public Mixer {
 public:
  LatentAttention(WeightBinder& binder, const HParams& h, int layer, const LatentShape& shape)
      : shape_(shape), heads_(h.heads), rotated_(h.rope.dims), rms_eps_(h.rms_eps), pairs_(h.rope_pairs) {
    const auto vector = [&](std::string_view name, int64_t n) { return binder.vector(layer_tensor(layer, name), n); };
    const auto linear = [&](std::string_view name, int64_t columns, int64_t rows) {
      return bind_linear(binder, layer, name, columns, rows);
    };
    params_.scale = h.attention_scale;
    norm_ = vector("attn_norm.weight", h.width);
    const int64_t q = heads_ * shape.key_length;
    if (shape.query_rank > 0) {
      query_down_ = linear("attn_q_a", h.width, shape.query_rank);
      query_norm_ = vector("attn_q_a_norm.weight", shape.query_rank);
      query_ = linear("attn_q_b", shape.query_rank, q);
    } else {
      query_ = linear("attn_q", h.width, q);
    }
    down_ = linear("attn_kv_a_mqa", h.width, wide());
    latent_norm_ = vector("attn_kv_a_norm.weight", shape.rank);
    if (shape.absorbed) {
      key_up_ = bind_heads(binder, layer, "attn_k_b", plain(), shape.rank, heads_);
      value_up_ = bind_heads(binder, layer, "attn_v_b", shape.rank, shape.value_length, heads_);
    } else {
      unfold_ = linear("attn_kv_b", shape.rank, heads_ * (plain() + shape.value_length));
    }
    if (shape.gated) gate_ = linear("attn_gate", h.width, heads_);
    output_ = linear("attn_output", heads_ * shape.value_length, h.width);
  }

  void plan(ScratchPlan& plan) const override {
    plan.need(ScratchPart::normed, norm_.shape[0]);
    plan.need(ScratchPart::rope, rotated_);
    plan.need(ScratchPart::latent_query, shape_.query_rank);
    plan.need(ScratchPart::query, heads_ * shape_.key_length);
    plan.need(ScratchPart::latent, wide());
    if (shape_.gated) plan.need(ScratchPart::step, heads_);
    plan.need(ScratchPart::attended, heads_ * (shape_.absorbed ? shape_.rank : shape_.value_length));
    if (shape_.absorbed) {
      plan.need(ScratchPart::wide_query, heads_ * wide());
      plan.need(ScratchPart::value, heads_ * shape_.value_length);
    } else {
      plan.need(ScratchPart::key, heads_ * shape_.key_length);
      plan.need(ScratchPart::value, heads_ * (plain() + shape_.value_length));
    }
  }

  void run(const Pass& pass, int layer, const Tensor& x) const override {
    Compute& compute = pass.compute;
    const int64_t n = x.shape[1];
    const Tensor normed = pass.scratch.get(ScratchPart::normed, x.shape[0], n);
    const Tensor q = pass.scratch.get(ScratchPart::query, heads_ * shape_.key_length, n);
    const Tensor latent = pass.scratch.get(ScratchPart::latent, wide(), n);
    compute.rms_norm(x, norm_, rms_eps_, normed);
    project(pass, normed, q, latent);

    const Tensor narrow = latent.slice_columns(0, shape_.rank);
    compute.rms_norm(narrow, latent_norm_, rms_eps_, narrow);
    const Tensor angles = rope_rows(pass, rotated_, n);
    const Tensor q_heads = q.reshaped({shape_.key_length, heads_, n, 1});
    compute.rope(q_heads.slice_columns(plain(), rotated_), angles, pairs_);
    compute.rope(one_head(latent.slice_columns(shape_.rank, rotated_)), angles, pairs_);
    if (shape_.temperature.scale != 0.0) compute.temperature(shape_.temperature, pass.rows.positions, q_heads);
    const KvLayer& kv = pass.kv[static_cast<size_t>(layer)];
    const Tensor values =
        shape_.absorbed ? attend_absorbed(pass, kv, q_heads, latent, n) : attend_unfolded(pass, kv, q_heads, latent, n);
    if (shape_.gated) {
      const Tensor gate = pass.scratch.get(ScratchPart::step, heads_, n).reshaped({1, heads_, n, 1});
      const Tensor by_head = values.reshaped({shape_.value_length, heads_, n, 1});
      apply(compute, gate_, normed, pass.scratch.get(ScratchPart::step, heads_, n));
      compute.sigmoid_gate(gate, by_head, by_head);
    }
    apply(compute, output_, values, normed);
    compute.add(x, normed, x);
  }

 private:
  int64_t plain() const { return shape_.key_length - rotated_; }  ///< of a head, not rotated
  int64_t wide() const { return shape_.rank + rotated_; }         ///< of a cached row

  void project(const Pass& pass, const Tensor& normed, const Tensor& q, const Tensor& latent) const {
    Compute& compute = pass.compute;
    if (shape_.query_rank == 0) {
      const std::array<MatmulTerm, 2> terms{query_.to(q), down_.to(latent)};
      return compute.matmul(normed, terms);
    }
    const Tensor small = pass.scratch.get(ScratchPart::latent_query, shape_.query_rank, normed.shape[1]);
    const std::array<MatmulTerm, 2> terms{query_down_.to(small), down_.to(latent)};
    compute.matmul(normed, terms);
    compute.rms_norm(small, query_norm_, rms_eps_, small);
    apply(compute, query_, small, q);
  }

  Tensor attend_absorbed(const Pass& pass, const KvLayer& kv, const Tensor& q, const Tensor& latent, int64_t n) const {
    Compute& compute = pass.compute;
    const Tensor wide_q =
        pass.scratch.get(ScratchPart::wide_query, heads_ * wide(), n).reshaped({wide(), heads_, n, 1});
    const Tensor attended =
        pass.scratch.get(ScratchPart::attended, heads_ * shape_.rank, n).reshaped({shape_.rank, heads_, n, 1});
    const Tensor values = pass.scratch.get(ScratchPart::value, heads_ * shape_.value_length, n);
    compute.matmul_heads(q.slice_columns(0, plain()), key_up_.weight, key_up_.scale,
                         wide_q.slice_columns(0, shape_.rank));
    compute.scale(1.0f, q.slice_columns(plain(), rotated_), wide_q.slice_columns(shape_.rank, rotated_));
    compute.store_kv(one_head(latent), {}, pass.rows, kv);
    compute.attention(wide_q, pass.rows, kv, params_, attended);
    compute.matmul_heads(attended, value_up_.weight, value_up_.scale,
                         values.reshaped({shape_.value_length, heads_, n, 1}));
    return values;
  }

  Tensor attend_unfolded(const Pass& pass, const KvLayer& kv, const Tensor& q, const Tensor& latent, int64_t n) const {
    Compute& compute = pass.compute;
    const int64_t both = plain() + shape_.value_length;
    const Tensor unfolded = pass.scratch.get(ScratchPart::value, heads_ * both, n);
    const Tensor k = pass.scratch.get(ScratchPart::key, heads_ * shape_.key_length, n);
    const Tensor attended = pass.scratch.get(ScratchPart::attended, heads_ * shape_.value_length, n);
    apply(compute, unfold_, latent.slice_columns(0, shape_.rank), unfolded);
    const Tensor by_head = unfolded.reshaped({both, heads_, n, 1});
    const Tensor k_heads = k.reshaped({shape_.key_length, heads_, n, 1});
    compute.scale(1.0f, by_head.slice_columns(0, plain()), k_heads.slice_columns(0, plain()));
    const Tensor rotated = latent.slice_columns(shape_.rank, rotated_);
    for (int64_t head = 0; head < heads_; ++head)
      compute.scale(1.0f, rotated, k.slice_columns(head * shape_.key_length + plain(), rotated_));
    compute.store_kv(k_heads, by_head.slice_columns(plain(), shape_.value_length), pass.rows, kv);
    compute.attention(q, pass.rows, kv, params_, attended.reshaped({shape_.value_length, heads_, n, 1}));
    return attended;
  }

  LatentShape shape_;
  int64_t heads_, rotated_;
  float rms_eps_;
  RopePairs pairs_;
  AttentionParams params_;
  Tensor norm_, query_norm_ = {}, latent_norm_;
  Linear query_down_, query_, down_, unfold_, gate_, output_;
  HeadMatrices key_up_, value_up_;
};

}  // namespace

LatentShape read_latent_shape(const GgufFile& file, HParams& h) {
  LatentShape shape;
  shape.rank = need_count(file, "attention.kv_lora_rank", 1, kMaxWidth);
  shape.query_rank = read_count(file, "attention.q_lora_rank", 0, kMaxWidth, 0);
  // Files of the lite models may have a rank that they do not use; the first layer may be of another kind.
  int layer = 0;
  while (layer + 1 < h.layers && file.find_tensor(layer_tensor(layer, "attn_kv_a_mqa.weight")) == nullptr) ++layer;
  if (file.find_tensor(layer_tensor(layer, "attn_q.weight")) != nullptr &&
      file.find_tensor(layer_tensor(layer, "attn_q_a.weight")) == nullptr)
    shape.query_rank = 0;
  const int64_t key = read_count(file, "attention.key_length_mla", 0, kMaxHeadLength, 0);
  const int64_t value = read_count(file, "attention.value_length_mla", 0, kMaxHeadLength, 0);
  shape.absorbed = key > 0 && value > 0;
  shape.temperature.scale = read_number(file, "attention.temperature_scale", 0.0, -1e6, 1e6);
  if (shape.temperature.scale != 0.0)
    shape.temperature.length = need_count(file, "attention.temperature_length", 1, kMaxPositions);
  shape.key_length = shape.absorbed ? key : h.key_length;
  shape.value_length = shape.absorbed ? value : h.value_length;
  if (h.rope.dims >= shape.key_length)
    fail("{}: {}.rope.dimension_count is {}, but it must be less than the {} of a head's keys", file.path(),
         h.architecture, h.rope.dims, shape.key_length);
  const int64_t wide = shape.rank + h.rope.dims;
  if (shape.absorbed && (h.kv_heads != 1 || h.key_length != wide || h.value_length != shape.rank))
    fail(
        "{}: {}.attention.head_count_kv, key_length and value_length are {}, {} and {}, but latent attention of rank "
        "{} with {} rotated elements keeps 1, {} and {}",
        file.path(), h.architecture, h.kv_heads, h.key_length, h.value_length, shape.rank, h.rope.dims, wide,
        shape.rank);
  if (!shape.absorbed && h.kv_heads != h.heads)
    fail("{}: {}.attention.head_count_kv is {}, but without attention.key_length_mla each of {} heads has its own keys",
         file.path(), h.architecture, h.kv_heads, h.heads);
  h.kv_shapes.assign(static_cast<size_t>(h.layers), {h.kv_heads, h.key_length, h.value_length, shape.absorbed});
  const int64_t between = shape.absorbed ? shape.rank + wide : 2 * shape.key_length - h.rope.dims + shape.value_length;
  h.mixer_floats = shape.query_rank + wide + h.heads * (shape.key_length + shape.value_length + between);
  return shape;
}

std::unique_ptr<Mixer> bind_latent_attention(WeightBinder& binder, const HParams& hparams, int layer,
                                             const LatentShape& shape) {
  return std::make_unique<LatentAttention>(binder, hparams, layer, shape);
}

}  // namespace moetier
