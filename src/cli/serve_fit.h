// Fits a server's context and ubatch to the memory there is. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/context.h"
#include "experts/sizing.h"
#include "model/hparams.h"

namespace moetier::cli {

/// Bytes where nothing else is said.
struct FitInput {
  HParams hparams;
  TensorType kv_type = TensorType::f16;
  int parallel = 1;
  bool saves_prompts = false;  ///< a state that waits to be written takes memory like one more slot
  int64_t group_rows = 0;
  std::optional<int64_t> context, ubatch;  ///< asked for; nullopt: to be chosen
  bool favor_prompt = false;
  uint64_t min_cache = 0;
  uint64_t bank = 0, dense = 0;
  std::optional<uint64_t> available;
  uint64_t group_limit = 0;
  ResidencyOptions residency;
};

struct ServeFit {
  int64_t context = 0, ubatch = 0;
  ContextBytes bytes;
  SizingPlan plan;
  std::vector<std::string> why;  ///< sentences
};

/// Positions that a slot gets at most when nobody says how many.
inline constexpr int64_t kMostServeContext = 32768;

/// The largest context whose KV cache takes at most a quarter of memory, and then the largest ubatch, that leave the
/// expert cache min_cache; both go down together where they do not.
ServeFit fit_serve(const FitInput& input);

}  // namespace moetier::cli
