// --replay: a recorded trace's routing, or chance, in place of the router's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/param.h"
#include "cli/settings.h"
#include "engine/context.h"
#include "experts/replay.h"

namespace moetier::cli {

ParamList replay_params();

/// Reads the trace before the model is loaded, since the trace says how many experts a token uses.
class Replay {
 public:
  /// Errors: a trace that cannot be read, --n-expert-used that contradicts it.
  explicit Replay(const Settings& settings);
  bool active() const { return !name_.empty(); }
  int top_k() const { return trace_ ? trace_->top_k : 0; }  ///< for load_engine(); 0 = as the model says
  /// Every layer of this context plays from the trace's beginning, and goes on with each row it computes. Must live as
  /// long as the context computes. Errors: a model without experts, or of another number of them.
  void install(Context& context);
  std::string describe() const { return source_ != nullptr ? source_->describe() : ""; }

 private:
  static void replace(void* self, int layer, std::span<int32_t> ids, std::span<float> weights, int64_t rows);
  std::string name_;
  std::optional<RoutingTrace> trace_;
  std::unique_ptr<RoutingSource> source_;
  std::vector<int> place_;         // by the model's layer number: among its MoE layers
  std::vector<int64_t> next_row_;  // by place
};

}  // namespace moetier::cli
