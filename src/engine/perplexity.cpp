#include "engine/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/score.h"

namespace moetier {
namespace {

class Scorer {
 public:
  Scorer(Context& context, const PerplexityOptions& options, int64_t window)
      : context_(context), options_(options), sequence_(context.new_sequence()) {
    // Position i is scored by how it foretells token i + 1. The stock tool leaves out the middle token itself.
    first_ = options.score_all ? 0 : window / 2;
  }

  /// Adds a window to the mean, all of it or nothing.
  void score(std::span<const TokenId> tokens) {
    sequence_.truncate(0);
    RunningMean mean = mean_;
    const auto size = static_cast<int64_t>(tokens.size());
    const int64_t step = options_.token_by_token ? 1 : size;
    for (int64_t begin = 0; begin < size; begin += step) {
      rows_.clear();
      targets_.clear();
      for (int64_t i = begin; i < std::min(begin + step, size); ++i) {
        const TokenId token = i == 0 && options_.bos >= 0 ? options_.bos : tokens[static_cast<size_t>(i)];
        const bool wanted = i >= first_ && i + 1 < size;
        rows_.push_back({token, &sequence_, wanted});
        if (wanted) targets_.push_back(tokens[static_cast<size_t>(i) + 1]);
      }
      context_.decode(rows_, [&](int64_t index, std::span<const float> logits) {
        mean.add(negative_log_likelihood(logits, targets_[static_cast<size_t>(index)]));
      });
    }
    mean_ = mean;
  }

  const RunningMean& mean() const { return mean_; }

 private:
  Context& context_;
  const PerplexityOptions& options_;
  SequenceState sequence_;
  int64_t first_ = 0;
  RunningMean mean_;
  std::vector<BatchRow> rows_;
  std::vector<TokenId> targets_;
};

void fill(PerplexityResult& result, const RunningMean& mean) {
  result.scored = mean.count();
  result.mean_nll = mean.mean();
  result.mean_nll_error = mean.standard_error();
  result.perplexity = std::exp(result.mean_nll);
  result.perplexity_error = result.perplexity * result.mean_nll_error;
}

}  // namespace

PerplexityResult perplexity(Context& context, std::span<const TokenId> tokens, const PerplexityOptions& options,
                            const PerplexityProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const auto total = static_cast<int64_t>(tokens.size());
  const int64_t window = std::min(options.window, total);
  const int64_t least = options.score_all ? 2 : 3;
  if (options.window < least)
    usage_error("a perplexity window of {} tokens scores nothing: choose {} or more", options.window, least);
  if (window < least) fail("the text has {} tokens, too few to score: {} or more are needed", total, least);
  if (window > context.options().context) {
    fail("a perplexity window of {} tokens does not fit the context of {}: choose a smaller window or a larger context",
         window, context.options().context);
  }
  int64_t windows = total / window;
  if (options.most_windows > 0) windows = std::min(windows, options.most_windows);
  PerplexityResult result;
  result.window = window;
  Scorer scorer(context, options, window);
  const CancelScope cancel(context, options.cancel);
  for (int64_t i = 0; i < windows; ++i) {
    try {
      scorer.score(tokens.subspan(static_cast<size_t>(i * window), static_cast<size_t>(window)));
    } catch (const Cancelled&) {
      result.cancelled = true;
      break;
    }
    result.windows = i + 1;
    fill(result, scorer.mean());
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (progress) progress(result, windows);
  }
  return result;
}

}  // namespace moetier
