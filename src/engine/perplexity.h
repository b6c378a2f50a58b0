// Perplexity of a text.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "engine/context.h"

namespace moetier {

struct PerplexityOptions {
  int64_t window = 512;  ///< tokens per window; windows do not overlap and each begins with an empty sequence
  bool score_all =
      false;  ///< score every token that has one before it; else the second half of each window, as the field does
  bool token_by_token = false;  ///< one row per decode() instead of a window at once; the numbers are the same
  TokenId bos = -1;  ///< put in place of each window's first token, as the field does for vocabularies that add a BOS;
                     ///< -1 = leave it
  int64_t most_windows = 0;                   ///< 0 = all
  const std::atomic<bool>* cancel = nullptr;  ///< ends it at once; the window at hand is left out
};

struct PerplexityResult {
  int64_t windows = 0, window = 0;  ///< windows scored, and their tokens
  int64_t scored = 0;               ///< tokens that count
  double mean_nll = 0;              ///< natural log, per token
  double mean_nll_error = 0;        ///< standard error of it
  double perplexity = 0;            ///< e^mean_nll
  double perplexity_error = 0;      ///< perplexity * mean_nll_error
  double seconds = 0;
  bool cancelled = false;
};

/// Called after each window with what is known so far and the number of windows in all.
using PerplexityProgress = std::function<void(const PerplexityResult& so_far, int64_t windows)>;

/// Of the stock tool's kind: windows of `window` tokens; a tail shorter than a window is left out. A text shorter than
/// one window is one window. Errors: fewer than two tokens to score, a window that is larger than the context.
PerplexityResult perplexity(Context& context, std::span<const TokenId> tokens, const PerplexityOptions& options,
                            const PerplexityProgress& progress = {});

}  // namespace moetier
