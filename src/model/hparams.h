// A model's hyperparameters, as its GGUF metadata gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "gguf/reader.h"

namespace moetier {

/// A layer's keys and values; no heads: it keeps none.
struct KvShape {
  int64_t heads = 0, key_length = 0, value_length = 0;
  bool latent = false;       ///< values are the first value_length elements of the keys
  int64_t ratio = 0;         ///< above 0: beside them a key for each whole block of so many positions
  int64_t index_length = 0;  ///< above 0: and one of this width, by which such keys are chosen
};

/// What a recurrent layer remembers; all 0: nothing.
struct RecurrentShape {
  int64_t channels = 0, inputs = 0;                    ///< of a convolution: so many of its last inputs
  int64_t state_width = 0, state_rows = 0, heads = 0;  ///< a state for each head
  int64_t floats() const { return channels * inputs + state_width * state_rows * heads; }
};

struct HParams {
  std::string architecture, name;
  int64_t context_length = 0;  ///< positions the model was trained for
  int64_t width = 0;           ///< embedding_length
  int streams = 1;             ///< residual streams, each of that width
  int layers = 0;              ///< executed layers
  int64_t vocab = 0;
  int64_t ffn_width = 0;  ///< dense FFN
  int heads = 0, kv_heads = 0;
  int64_t key_length = 0, value_length = 0;
  float rms_eps = 1e-6f;
  RopeParams rope;
  RopePairs rope_pairs = RopePairs::halves;
  bool long_rope = false;                         ///< factors for contexts longer than the original, and for others
  int experts = 0, top_k = 0;                     ///< 0 = dense model
  int expert_groups = 1, expert_groups_used = 1;  ///< 1 = no group routing
  int64_t expert_width = 0;                       ///< of a routed expert
  int64_t shared_width = 0;                       ///< of the shared expert, 0 = none
  int moe_step = 1;                               ///< then experts are in every so many layers, the last of them
  int leading_dense = 0;                          ///< so many layers have a dense FFN, not experts
  std::vector<int64_t> windows = {};              ///< per layer, 0 = all positions; empty = all in all layers
  float embedding_scale = 1.0f;                   ///< multiplies embeddings
  float residual_scale = 1.0f;                    ///< multiplies what each block adds to the residual
  float logit_factor = 1.0f;                      ///< multiplies logits
  float logit_cap = 0.0f;                         ///< logits become cap * tanh(logits / cap); 0 = as they are
  std::vector<int64_t> layer_kv_heads = {};       ///< where layers may differ: kv_heads of each (kv_heads: the most)
  std::vector<int64_t> layer_ffn_widths = {};     ///< with HeadsPerLayer::some_without: ffn_width of each, 0 = no FFN
  std::vector<KvShape> kv_shapes = {};            ///< per layer; empty = as kv_heads, key_length and value_length say
  std::vector<RecurrentShape> recurrent = {};     ///< per layer; empty = none in any layer
  float attention_scale = 0.0f;                   ///< multiplies q.k; 0 = 1 / sqrt(key_length)
  int64_t mixer_floats = 0;                       ///< scratch of a row for mixing; 0 = as plain attention needs

  int64_t residual_width() const { return width * streams; }
  /// Whether a layer has experts.
  bool is_moe(int layer) const { return experts > 0 && layer >= leading_dense && (layer + 1) % moe_step == 0; }
  KvShape kv_shape(int layer) const {
    return kv_shapes.empty() ? KvShape{kv_heads, key_length, value_length} : kv_shapes[static_cast<size_t>(layer)];
  }
  /// How many positions a layer sees, 0 = all.
  int64_t window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
};

/// Limits that a file's numbers must keep: generous for real models, small enough that no product of two overflows.
inline constexpr int kMaxLayers = 512;
inline constexpr int kMaxExpertCount = 1024;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadLength = 8192;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

/// Whether layers of a family may differ in their key/value heads: how many there are, and how wide (those of windowed
/// layers). With may_differ, read_hparams() sets `windows` and `kv_shapes`. With some_without, layers without any have
/// 0 in `layer_kv_heads`; the others all have as many. Likewise `layer_ffn_widths`.
enum class HeadsPerLayer : uint8_t { same, may_differ, some_without };

/// Reads the keys that all families share and checks that they fit one another. The width of experts is left to the
/// family. Errors name the file, the key and what was wanted. `rope.factors` stays empty.
/// Limits of activations are an error, unless the family knows them (`limited`).
HParams read_hparams(const GgufFile& file, HeadsPerLayer heads = HeadsPerLayer::same, bool limited = false);

/// The value of `architecture.key` (an integer, or an array with the same integer for every layer) within [low, high];
/// `absent` if there is no such key.
int64_t read_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high, int64_t absent);
/// The same, but an absent key is an error.
int64_t need_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high);
/// A number that must be within [low, high], if it is there.
double read_number(const GgufFile& file, std::string_view key, double absent, double low, double high);
/// A truth value; `absent` if there is no such key.
bool read_flag(const GgufFile& file, std::string_view key, bool absent);
/// `expert_gating_func`; 0 (or no such key) is `absent`, and an error where that is nullopt.
Gating read_gating(const GgufFile& file, std::optional<Gating> absent);
/// `expert_weights_scale`, with 1 for an absent key and for 0.
float read_weights_scale(const GgufFile& file);
/// Sets `windows` from `attention.sliding_window` (needed) and `attention.sliding_window_pattern`: true for each
/// windowed layer, or a period whose last layer sees all; `period` where the key is absent.
void read_windows(const GgufFile& file, HParams& hparams, int64_t period);
/// Sets `leading_dense` from `leading_dense_block_count`.
void read_leading_dense(const GgufFile& file, HParams& hparams);

/// `expert_feed_forward_length`; where absent or 0, ffn_width / top_k (the file's own, whatever an override says),
/// which must come out even.
int64_t read_expert_width(const GgufFile& file, const HParams& hparams);

}  // namespace moetier
