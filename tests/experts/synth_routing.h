// Traces made by chance, with known habits: for tests that need no recorded ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "experts/simulator.h"

namespace moetier {

struct RoutingHabits {
  int layers = 24, experts = 64, top_k = 4;
  int prompt = 24, decode = 96;
  double skew = 1;       ///< popularity falls as rank to the power of -skew
  double recency = 0.3;  ///< share of picks repeated from one of the last tokens
  int reach = 6;         ///< how many tokens back, at most
  uint64_t entry_bytes = 4096;
};

inline TraceRun synth_run(const RoutingHabits& h, uint64_t seed) {
  Xoshiro256 random(seed);
  const auto uniform = [&] { return static_cast<double>(random.next_starstar() >> 11) * 0x1p-53; };
  const auto below = [&](int n) { return static_cast<int>(random.next_starstar() % static_cast<uint64_t>(n)); };
  TraceRun run;
  run.prompt_tokens = h.prompt;
  run.decode_tokens = h.decode;
  const auto layers = static_cast<size_t>(h.layers);
  run.shapes.assign(layers, {h.experts, h.top_k, h.entry_bytes, (h.entry_bytes + 4095) / 4096 * 4096});
  // By layer: experts in an order of their own, and the running sum of their popularity.
  std::vector<std::vector<int>> order(layers);
  std::vector<double> sums;
  double sum = 0;
  for (int e = 0; e < h.experts; ++e) sums.push_back(sum += std::pow(e + 1, -h.skew));
  for (std::vector<int>& its : order) {
    for (int e = 0; e < h.experts; ++e) its.push_back(e);
    for (int e = h.experts - 1; e > 0; --e)
      std::swap(its[static_cast<size_t>(e)], its[static_cast<size_t>(below(e + 1))]);
  }
  std::vector<std::vector<std::vector<int32_t>>> past(layers);
  const auto token = [&](size_t layer) {
    std::vector<int32_t> picks;
    std::vector<std::vector<int32_t>>& its = past[layer];
    while (static_cast<int>(picks.size()) < h.top_k) {
      int32_t expert = 0;
      if (!its.empty() && uniform() < h.recency) {
        const auto& from =
            its[its.size() - 1 - static_cast<size_t>(below(std::min(h.reach, static_cast<int>(its.size()))))];
        expert = from[static_cast<size_t>(below(h.top_k))];
      } else {
        const auto at = std::ranges::lower_bound(sums, uniform() * sum);
        expert = order[layer][std::min(static_cast<size_t>(at - sums.begin()), sums.size() - 1)];
      }
      if (std::ranges::find(picks, expert) != picks.end()) expert = below(h.experts);
      if (std::ranges::find(picks, expert) == picks.end()) picks.push_back(expert);
    }
    its.push_back(picks);
    return picks;
  };
  const auto add = [&](size_t layer, int64_t rows, bool prompt) {
    TraceRun::Step step{static_cast<int>(layer), rows, prompt, run.picks.size(), 0};
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<int32_t> picks = token(layer);
      run.picks.insert(run.picks.end(), picks.begin(), picks.end());
    }
    step.count = run.picks.size() - step.first;
    run.steps.push_back(step);
  };
  for (size_t l = 0; l < layers && h.prompt > 0; ++l) add(l, h.prompt, true);
  for (int t = 0; t < h.decode; ++t) {
    for (size_t l = 0; l < layers; ++l) add(l, 1, false);
  }
  return run;
}

}  // namespace moetier
