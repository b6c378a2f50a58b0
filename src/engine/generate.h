// Generation: a prompt in, text out, until something says stop.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context.h"
#include "engine/sampler.h"

namespace moetier {

struct GenerateOptions {
  int64_t max_tokens = -1;  ///< -1 = until the context is full
  SamplerOptions sampler;
  std::vector<std::string> stop;  ///< texts that end it; never part of the output
  bool ignore_eog = false;
  const std::atomic<bool>* cancel = nullptr;
};

enum class StopReason { end_of_generation, length, stop_text, context_full, cancelled };
std::string_view to_string(StopReason reason);

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;  ///< generated, without the one that ended it
  StopReason reason = StopReason::length;
  int64_t prompt_tokens = 0, reused_tokens = 0;
  double prompt_seconds = 0;
  std::vector<double> token_seconds;  ///< wall time of each generated token
};

/// Feeds `prompt` to the sequence (positions it already holds with the same tokens are reused: `held` lists what it
/// holds and is updated), then samples. `on_text` receives text as it becomes certain (never half a character, never
/// part of a stop text); returning false cancels.
GenerateResult generate(Context& context, SequenceState& sequence, std::vector<TokenId>& held,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const std::function<bool(std::string_view)>& on_text = {});

}  // namespace moetier
