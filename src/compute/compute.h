// Compute: the operations a model needs. A model is written against this and nothing else, so it runs on any backend.
//
// Conventions: activations are f32 tensors [columns, rows] with one row per token (or per head and token); weights are
// [columns in, rows out] in any computable type. Operations are issued in order and take effect in order; the host sees
// results only through download(). Every operation follows docs/numbers.md: its bits depend on nothing but its inputs -
// not on threads, the number of rows in the call, or the instruction set. No operation allocates in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "compute/tensor.h"

namespace moetier {

enum class Activation : uint8_t {
  silu,
  gelu,
  sigmoid,     ///< dense only
  identity,    ///< dense only: gate * up
  relu,        ///< max(0, gate) * up; of one projection by itself, relu squared
  swiglu_oai,  ///< g * sigmoid(1.702 g) * (u + 1) with g = min(gate, 7), u = up within -7 and 7; for experts only
};
enum class RopePairs : uint8_t {
  neighbours,  ///< elements 2i and 2i+1 ("normal")
  halves,      ///< elements i and i + dims/2 ("neox")
};
enum class Gating : uint8_t {
  softmax,
  sigmoid,
  softmax_of_picks,
  sqrt_softplus,  ///< square root of ln(1 + e^x)
};

/// Positions in a KV page and in one block of attention.
inline constexpr int64_t kPagePositions = 64;

/// One weight applied to a shared input: out = weight . x (* scale) (+ bias), each [rows out, rows of x].
struct MatmulTerm {
  Tensor weight;     ///< [columns, out]
  Tensor out;        ///< f32 [out, n]
  Tensor bias = {};  ///< f32 [out], optional
  float scale = 1.0f;
};

/// Rotary embedding: angle(i, p) = p * freq_scale * base^(-2i/dims) / factor(i), i < dims/2.
struct RopeParams {
  int64_t dims = 0;  ///< rotated elements of a head, even
  double base = 10000.0;
  double freq_scale = 1.0;
  double magnitude = 1.0;  ///< multiplies cos and sin; the net factor, so a backend adds none of YaRN's own
  // YaRN (ext_factor 0 = off), see docs/graphs.md: which pairs keep their frequency and which take freq_scale.
  double ext_factor = 0.0, beta_fast = 32.0, beta_slow = 1.0;
  int64_t original_context = 0;
  Tensor factors = {};  ///< f32 [dims/2], optional
  int64_t step = 1;     ///< positions are rounded down to multiples of it
};

/// A factor for queries that grows with the position, in steps.
struct TemperatureParams {
  double scale = 0.0;  ///< 0 = none
  int64_t length = 1, offset = 0;
};

/// The rows of one ubatch, the same for all layers. All tensors are i32.
struct BatchRows {
  Tensor tokens;      ///< [n]
  Tensor positions;   ///< [n], position within the row's sequence, from 0
  Tensor sequences;   ///< [n], column of page_table
  Tensor page_table;  ///< [pages per sequence, sequences]: page ids in order of position
  // For recurrent layers, of each row the slots of its sequence's state: where it is read before the sequence's first
  // row of the ubatch (-1: there is none yet, it is zero), and where it is left after the last one.
  Tensor states_from = {}, states_to = {};  ///< [n]
  int64_t count() const { return tokens.shape[0]; }
};

/// One layer's keys and values in pages of kPagePositions: k [dk, 64, kv heads, pages], v [dv, 64, kv heads, pages];
/// f16, f32 or, where dk and dv are multiples of 32, q8_0. Where values are the first dv elements of the keys (latent
/// attention), v is a view of k. Of the same type, where a layer has them, entries: one key for each whole block of
/// `ratio` positions (a divisor or a multiple of a page's), in the page of the block's last position.
struct KvLayer {
  Tensor k, v;
  Tensor blocks = {};       ///< [dk, entries per page, 1, pages], keys and values
  Tensor block_index = {};  ///< [width, entries per page, 1, pages], keys by which entries are chosen
};

/// Entries of blocks of `ratio` positions that a page holds.
constexpr int64_t entries_per_page(int64_t ratio) {
  return ratio < kPagePositions ? kPagePositions / ratio : 1;
}

/// What a recurrent layer remembers, f32: in each slot one state. Which of the two there are is the layer's business.
struct RecurrentLayer {
  Tensor inputs;  ///< [channels, taps - 1, slots]: a convolution's last inputs, oldest first
  Tensor state;   ///< [width, rows, heads, slots]; width is a multiple of 16
};

/// A causal convolution of each channel by itself.
struct ConvParams {
  Tensor weight;     ///< f32 [channels, taps]; the last tap meets the row itself
  Tensor bias = {};  ///< f32 [channels], optional
  bool silu = false;
};

/// The gated delta rule. With S a head's state, k, q, v a row's vectors: S = exp(g) S; S += k (beta (v - S k)); the
/// row's output is S q / sqrt(d); g = factor * softplus(decay + bias), beta = sigmoid(step).
struct DeltaInputs {
  Tensor query, key;   ///< [d, key heads, n]
  Tensor value;        ///< [d, heads, n]
  Tensor decay, step;  ///< [heads, n]
  Tensor bias;         ///< f32 [heads], of decay
  Tensor factor;       ///< f32 [heads]
  bool tiled = false;  ///< head h has key head h mod key heads; else neighbouring heads share one
  /// Below 0: each element of a key has a decay of its own, decay is [d, heads, n] and bias f32 [d, heads], and g =
  /// least_decay * sigmoid(factor * (decay + bias)) scales that column of S.
  float least_decay = 0.0f;
};

/// Mamba 2. With S a head's state, x, b, c a row's vectors and t = softplus(step + bias): S = exp(t * factor) S + (x t)
/// b; the row's output is S c + skip * x. Neighbouring heads share a group's b and c.
struct ScanInputs {
  Tensor x;                   ///< [rows, heads, n]
  Tensor b, c;                ///< [width, groups, n]
  Tensor step;                ///< [heads, n]
  Tensor bias, factor, skip;  ///< f32 [heads]
};

/// What makes one row out of a block of positions: of each channel the sum of its values, weighted by the softmax of
/// its gates over the block's positions. `overlapping`: there are twice as many channels; the second half is taken from
/// the block's positions, the first half from those of the block before (if there is one), and both go into one
/// softmax.
struct CompressParams {
  Tensor values, gates;  ///< [channels, n]
  Tensor bias;           ///< f32 [channels, ratio]: added to the gates of a position by its place in its block
  int64_t ratio = 1;
  bool overlapping = false;

  /// Positions that are remembered.
  int64_t remembered() const { return overlapping ? 2 * ratio : ratio; }
};

/// Chooses entries for each row: the top_k with the highest scores among the blocks that end at or before it. An
/// entry's score is the sum over heads of weight * max(0, query . key).
struct BlockChoice {
  Tensor query;        ///< [width, heads, n]
  Tensor weights;      ///< [heads, n]
  float scale = 1.0f;  ///< multiplies the weights
  int64_t ratio = 1;
  int64_t top_k = 1;
};

/// Several residual streams that are mixed before and after each block of a layer (hyper-connections). Of a row's mixed
/// numbers the first `streams` weigh the streams on their way in, as many the block's result on its way out, and the
/// others, a matrix [to, from], the streams on theirs; it is made nearly doubly stochastic (Sinkhorn).
struct StreamParams {
  int64_t streams = 1;
  int iterations = 1;
  float eps = 0.0f;
  Tensor scale;  ///< f32 [3], or [1] where there is only the first kind
  Tensor base;   ///< f32 [streams * (2 + streams)], or [streams]
};

struct AttentionParams {
  float scale = 1.0f;
  int64_t window = 0;  ///< 0 = all; else only keys with query position - key position < window
  int64_t chunk = 0;   ///< 0 = all; else only keys from the last multiple of chunk on that is not after the query
  Tensor sinks = {};   ///< f32 [heads], optional: one more logit of each head in the softmax, without a value
  /// Above 0: beside the window's keys those of KvLayer::blocks are seen, of whole blocks of so many positions: all, or
  /// where there are `picks` i32 [most, n] those, ascending and -1 behind the last.
  int64_t ratio = 0;
  Tensor picks = {};
};

struct RouteParams {
  int top_k = 0;
  Gating gating = Gating::softmax;
  bool normalize = false;  ///< divide the picks' weights by max(their sum, 6.103515625e-05)
  float scale = 1.0f;
  int groups = 1, groups_used = 1;
  bool by_logits = false;  ///< picks are chosen by their logits, whatever their weights come from
  Tensor chosen = {};      ///< i32 [top_k, n], optional: these are the picks, whatever their scores
};

/// The weights of one expert, wherever its tier keeps them; addresses are the backend's own.
struct ExpertWeights {
  const std::byte* gate = nullptr;  ///< [columns, width]; if `fused`, gate rows then up rows: [columns, 2 * width]
  const std::byte* up = nullptr;    ///< [columns, width]; nullptr if fused or not gated
  const std::byte* down = nullptr;  ///< [width, columns]
  Layout gate_layout = Layout::file, up_layout = Layout::file, down_layout = Layout::file;
  float gate_scale = 1.0f, up_scale = 1.0f, down_scale = 1.0f;  ///< factors of the products; not with `fused`
};

/// What the experts of one layer have in common.
struct ExpertFfn {
  int64_t columns = 0;  ///< model width
  int64_t width = 0;    ///< expert width
  TensorType gate_type = TensorType::f32, up_type = TensorType::f32, down_type = TensorType::f32;
  bool fused = false;
  Activation activation = Activation::silu;
  // f32, optional: added to the projections of expert e are column e's numbers.
  Tensor gate_bias = {}, up_bias = {};  ///< [width, experts]; also where gate and up are fused
  Tensor down_bias = {};                ///< [columns, experts]
  bool weigh_input = false;             ///< the picks' weights multiply what the experts are given, not what they give
  bool gated = true;   ///< else there is no gate: `gate` is the one first projection, and stands for up, too
  float limit = 0.0f;  ///< above 0: before silu, gate is at most so much, and up within it on both sides
};

/// One pick's place: `row` of the input, and `slot` = row * top_k + rank among all picks of the call.
struct PickPlace {
  int32_t row, slot;
};

/// An expert that is ready and the picks that want it.
struct ExpertGroup {
  int32_t expert = 0;
  ExpertWeights weights;
  std::span<const PickPlace> picks;  ///< ascending row
};

/// How much of its experts a call of experts_run() computes.
enum class ExpertStage : uint8_t {
  whole,
  first,  ///< gate, up and the activation: the down projection need not be there yet
  last,   ///< the down projection of experts whose first stage was computed before
};

class OpProfile;

class Compute {
 public:
  virtual ~Compute() = default;

  virtual std::string name() const = 0;  ///< e.g. "cpu (avx2, 2 threads)"

  // --- memory ---
  virtual std::unique_ptr<Buffer> allocate(size_t bytes) = 0;  ///< zeroed, 64-byte aligned
  virtual std::unique_ptr<Buffer> wrap(const void* host,
                                       size_t bytes) = 0;       ///< read-only host memory, e.g. a mapped file
  virtual void upload(const Tensor& to, const void* from) = 0;  ///< whole packed tensor
  virtual void download(const Tensor& from, void* to) = 0;      ///< waits for what was issued before

  // --- dense operations ---
  /// out[:, r] = table[:, ids[r]], decoded to f32; of a table of i32, as it is.
  virtual void get_rows(const Tensor& table, const Tensor& ids, const Tensor& out) = 0;
  /// All terms share x, whose activations are quantized at most once per kind.
  virtual void matmul(const Tensor& x, std::span<const MatmulTerm> terms) = 0;
  /// A matrix for each head: out[:, h, r] = weight[:, :, h] . x[:, h, r] (* scale), with matmul()'s bits. weight
  /// [columns, out, heads], x [columns, heads, n], out [out, heads, n]; rows may be wider apart than packed.
  virtual void matmul_heads(const Tensor& x, const Tensor& weight, float scale, const Tensor& out) = 0;
  /// Each row: out = x / sqrt(mean(x^2) + eps) * weight; weight [columns] optional, or [columns, k] for
  /// rows in turn (heads, say). out may be x.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) = 0;
  /// out = a + b, same shape, or b one row for all of a's; out may be a or b.
  virtual void add(const Tensor& a, const Tensor& b, const Tensor& out) = 0;
  /// out = factor * x; out may be x.
  virtual void scale(float factor, const Tensor& x, const Tensor& out) = 0;
  /// out = x within [low, high] (a NaN stays); out may be x.
  virtual void clamp(float low, float high, const Tensor& x, const Tensor& out) = 0;
  /// out = limit * tanh(x / limit); out may be x.
  virtual void soft_cap(float limit, const Tensor& x, const Tensor& out) = 0;
  /// out = activation(gate) * up (all but swiglu_oai); out may be either.
  virtual void glu(Activation activation, const Tensor& gate, const Tensor& up, const Tensor& out) = 0;
  /// out[:, r] = sigmoid(gate[0, r]) * x[:, r]; out may be x.
  virtual void sigmoid_gate(const Tensor& gate, const Tensor& x, const Tensor& out) = 0;
  /// table [dims, n]: for row r the dims/2 cosines, then the dims/2 sines, of its position.
  virtual void rope_table(const RopeParams& params, const Tensor& positions, const Tensor& table) = 0;
  /// Rotates x [d, heads, n] in place by the table [dims, n], or back; elements from dims on are left alone.
  virtual void rope(const Tensor& x, const Tensor& table, RopePairs pairs, bool back = false) = 0;
  /// x[:, :, r] = x[:, :, r] * (1 + scale * ln(1 + floor((position of r + offset) / length))).
  virtual void temperature(const TemperatureParams& params, const Tensor& positions, const Tensor& x) = 0;
  /// Puts k [dk, kv heads, n] and v [dv, kv heads, n] at their rows' pages and positions. v may be empty where the
  /// layer's values are a part of its keys.
  virtual void store_kv(const Tensor& k, const Tensor& v, const BatchRows& rows, const KvLayer& to) = 0;
  /// Row r, head h: softmax over positions 0..positions[r] of its sequence (or the window) of scale * q.k (and the
  /// head's sink), times v.
  /// q [dk, heads, n], out [dv, heads, n]. Heads share KV heads in equal groups.
  virtual void attention(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
                         const Tensor& out) = 0;

  // --- keys of blocks of positions ---
  /// out [width, n]: for rows that end a block its one row, else 0. The positions of the block that lie before the
  /// ubatch come from `memory` [2 * channels, remembered(), slots], and the last ones are left there.
  virtual void compress(const CompressParams& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) = 0;
  /// Puts x [width, n] at the entries of the blocks that their rows end; other rows are not looked at. `to` is
  /// KvLayer::blocks or block_index.
  virtual void store_blocks(const Tensor& x, const BatchRows& rows, int64_t ratio, const Tensor& to) = 0;
  /// picks i32 [top_k, n], ascending, -1 behind the last; of equal scores the lower entry. `keys` is
  /// KvLayer::block_index.
  virtual void choose_blocks(const BlockChoice& in, const BatchRows& rows, const Tensor& keys, const Tensor& picks) = 0;

  // --- residual streams ---
  /// weights [streams * (2 + streams), n] (or [streams, n]) from mixed numbers of that shape; it may be `mixed`.
  virtual void stream_weights(const StreamParams& params, const Tensor& mixed, const Tensor& weights) = 0;
  /// out [width, n] = sum over streams of weights[s] * x[s], of x [streams * width, n].
  virtual void join_streams(const StreamParams& params, const Tensor& x, const Tensor& weights, const Tensor& out) = 0;
  /// x[t] = weights[streams + t] * y + sum over s of weights[2 * streams + t + s * streams] * x[s], in place, of y
  /// [width, n].
  virtual void spread_streams(const StreamParams& params, const Tensor& y, const Tensor& weights, const Tensor& x) = 0;

  // --- recurrent operations: rows of a sequence in order, each with all of its earlier rows ---
  /// out[:, r] = f(sum over taps j of weight[:, j] * x[:, taps - 1 - j rows before r in its sequence] + bias), f silu
  /// or nothing. x [channels, n]; out must not overlap it. Inputs before the ubatch come from `memory` [channels, taps
  /// - 1, slots], and the last ones are left there.
  virtual void causal_conv(const Tensor& x, const ConvParams& params, const BatchRows& rows, const Tensor& memory,
                           const Tensor& out) = 0;
  /// out [d, heads, n]; `memory` [d, d, heads, slots]: for each element of v a row over the elements of k.
  virtual void delta_rule(const DeltaInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) = 0;
  /// out [rows, heads, n]; `memory` [width, rows, heads, slots].
  virtual void scan(const ScanInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) = 0;

  // --- experts (issued by the MoE operation only) ---
  /// logits [experts, n] -> ids i32 [top_k, n] by falling score (ties: lower id first), weights f32 [top_k, n].
  /// `selection_bias` [experts] optional: added to the scores for choosing only.
  virtual void route(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
                     const Tensor& weights) = 0;
  /// Starts a pass over x [columns, n] with the picks' weights f32 [top_k, n]: input activations are quantized once.
  ///
  /// Without `sums`, experts may come in any order, and each pick's output is kept until experts_finish(): for few
  /// rows. With `sums` [columns, n], which must not overlap x, experts must come in ascending id and are added to it at
  /// once, so that a prompt needs no room for every pick. The bits are the same.
  virtual void experts_begin(const ExpertFfn& ffn, const Tensor& x, const Tensor& weights, const Tensor& sums = {}) = 0;
  /// Computes ready experts; may be called several times, each expert once per pass (or once per stage, without
  /// `sums`).
  virtual void experts_run(std::span<const ExpertGroup> groups, ExpertStage stage = ExpertStage::whole) = 0;
  /// out[:, r] = sum over r's picks, in ascending expert id, of weight * expert(x[:, r]). `ids` is what route() gave.
  /// In a pass with `sums`, `out` is that tensor.
  virtual void experts_finish(const Tensor& ids, const Tensor& out) = 0;

  // --- measuring ---
  /// From now on adds its waits, and what is worth telling of the parts of an operation, to `profile`; nullptr: no
  /// more.
  virtual void profile(OpProfile* profile) { static_cast<void>(profile); }
};

}  // namespace moetier
