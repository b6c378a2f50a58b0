// How well a layer's experts can be known before its attention runs, by what is known then.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "experts/guess_log.h"

namespace moetier {

struct PredictionScore {
  /// Candidates are top_k, 2 top_k and 3 top_k experts of a layer.
  static constexpr std::array<int, 3> kTimes = {1, 2, 3};
  std::string_view name;
  std::array<double, kTimes.size()> recall{};  ///< share of a token's picks among the candidates, mean over layers
};

struct Prediction {
  /// previous: what the last tokens picked in this layer, newest first. popularity: what was picked most so far.
  /// co-occurrence: what was picked most beside this token's picks of the layer before, so far. next-router: what this
  /// layer's router would choose on the state of the layer before.
  std::vector<PredictionScore> scores;
  int64_t scored = 0;      ///< tokens; the first half only teaches
  double cycle_bytes = 0;  ///< of a token's picks, in all layers that were scored; 0 = not known
  int layers = 0;          ///< that were scored: all but the first
};

/// Each guess knows only what came before it. Errors: fewer than two layers or tokens.
Prediction predict_routes(const GuessLog& log);

}  // namespace moetier
