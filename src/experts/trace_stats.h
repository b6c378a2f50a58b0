// What a routing trace says about its model: how skewed, how repetitive, how fast the picked entries add up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "experts/trace.h"

namespace moetier {

enum class TracePhase : uint8_t { all, prompt, decoded };

struct TraceStats {
  /// Shares of a layer's picks that its hottest experts took: of 1/16, 1/8, 1/4 and 1/2 of all its experts.
  static constexpr std::array<int, 4> kParts = {16, 8, 4, 2};
  /// Tokens between two that are compared.
  static constexpr std::array<int, 6> kLags = {1, 2, 4, 8, 16, 32};

  struct Layer {
    int layer = 0;  ///< as the file numbers them
    int64_t tokens = 0;
    uint64_t picks = 0;
    int used = 0;          ///< distinct experts picked
    double effective = 0;  ///< exp of the entropy of the picks: so many experts, evenly picked, would be as varied
    std::array<double, kParts.size()> hottest{};
    double overlap = 0;      ///< of a token's picks, the share that the token before picked too
    double independent = 0;  ///< what the overlap would be if tokens drew from the layer's popularity, each for itself
    uint64_t entry_bytes = 0;  ///< 0 = not told
  };
  std::vector<Layer> layers;  ///< those with routings, ascending
  int n_expert = 0, top_k = 0;
  int64_t tokens = 0;  ///< most of any layer
  uint64_t picks = 0;

  /// By lag: share of a token's picks that the token so far before picked in the same layer; -1 where no two tokens are
  /// so far apart.
  std::array<double, kLags.size()> overlap{};
  double independent = 0;  ///< as for layers

  /// Picks by how many tokens ago their entry was picked before: 1, 2, 3-4, 5-8 ... The last holds all that are longer
  /// ago.
  std::array<uint64_t, 12> reuse{};
  uint64_t first_picks = 0;  ///< of an entry that was not picked before

  /// Distinct experts of a layer over windows of so many tokens, the mean of all whole windows and layers.
  struct Union {
    int64_t tokens = 0;
    double experts = 0;  ///< of a layer
    double bytes = 0;    ///< of all layers; 0 if any layer's entry bytes are not told
  };
  std::vector<Union> unions;  ///< windows of 1, 2, 4 ... tokens, as long as there is a whole one
};

/// Errors name `name`: no routing of that phase.
TraceStats trace_stats(const RoutingTrace& trace, const std::string& name, TracePhase phase = TracePhase::all);

}  // namespace moetier
