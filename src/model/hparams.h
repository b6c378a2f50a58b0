// A model's hyperparameters, as its GGUF metadata gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "gguf/reader.h"

namespace moetier {

struct HParams {
  std::string architecture, name;
  int64_t context_length = 0;  ///< positions the model was trained for
  int64_t width = 0;           ///< embedding_length
  int layers = 0;              ///< executed layers
  int64_t vocab = 0;
  int64_t ffn_width = 0;  ///< dense FFN
  int heads = 0, kv_heads = 0;
  int64_t key_length = 0, value_length = 0;
  float rms_eps = 1e-6f;
  RopeParams rope;
  RopePairs rope_pairs = RopePairs::halves;
  int experts = 0, top_k = 0;                     ///< 0 = dense model
  int expert_groups = 1, expert_groups_used = 1;  ///< 1 = no group routing
  int64_t expert_width = 0;                       ///< of a routed expert
  int64_t shared_width = 0;                       ///< of the shared expert, 0 = none
};

/// Limits that a file's numbers must keep: generous for real models, small enough that no product of two overflows.
inline constexpr int kMaxLayers = 512;
inline constexpr int kMaxExpertCount = 1024;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadLength = 8192;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

/// Reads the keys that all families share and checks that they fit one another. The width of experts is left to the
/// family. Errors name the file, the key and what was wanted. `rope.factors` stays empty.
HParams read_hparams(const GgufFile& file);

/// The value of `architecture.key` (an integer, or an array with the same integer for every layer) within [low, high];
/// `absent` if there is no such key.
int64_t read_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high, int64_t absent);
/// The same, but an absent key is an error.
int64_t need_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high);

/// `expert_feed_forward_length`; where absent or 0, ffn_width / top_k (the file's own, whatever an override says),
/// which must come out even.
int64_t read_expert_width(const GgufFile& file, const HParams& hparams);

}  // namespace moetier
