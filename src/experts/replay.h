// Where picks come from when they are not the router's: a recorded trace, or chance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experts/trace.h"

namespace moetier {

/// Picks for any token of any MoE layer of a model; the same question has the same answer.
class RoutingSource {
 public:
  struct Picks {
    std::span<const int32_t> ids;    ///< distinct, top_k() of them
    std::span<const float> weights;  ///< as many; they sum to 1
  };
  virtual ~RoutingSource() = default;
  /// `layer` counts the model's MoE layers from 0, `token` from 0 on without an end. Errors: a layer out of range. The
  /// spans live until the next call. Not thread-safe.
  virtual Picks picks(int layer, int64_t token) = 0;
  virtual int top_k() const = 0;
  virtual int64_t tokens() const = 0;        ///< distinct ones, after which they repeat; 0: they do not
  virtual std::string describe() const = 0;  ///< for logs and records
};

/// Replays a trace: model layer l of Lm plays the trace's MoE layer floor(l * Lt / Lm), and tokens wrap around. Only
/// tokens with the trace's top_k picks in every layer are played, decoded ones only if `decoded_only` (a trace without
/// any, such as a binary one read with all tokens as prompt, is an error then). Weights are made to sum to 1 and are
/// uniform where the trace does not know them. Errors name `name`: n_expert differs from the model's (a trace that does
/// not tell it needs only ids below the model's), no token can be played.
std::unique_ptr<RoutingSource> replay_trace(const RoutingTrace& trace, const std::string& name, int model_layers,
                                            int model_experts, bool decoded_only = true);

/// `top_k` of `experts` experts, each set as likely as any other, with uniform weights; drawn from the seed, the layer
/// and the token. Errors: top_k out of range.
std::unique_ptr<RoutingSource> random_routing(uint64_t seed, int model_layers, int experts, int top_k);

}  // namespace moetier
