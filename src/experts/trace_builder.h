// Puts a trace together, routing by routing, and checks what both formats share. Of the reader's own use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/trace.h"

namespace moetier {

class TraceInput;

class TraceBuilder {
 public:
  RoutingTrace trace;

  /// Begins a routing; `token` may be any number that orders the turn's tokens. `name` stands for the file in errors.
  void begin(int32_t token, int32_t layer, bool prompt, const std::string& name);
  /// Adds a pick to it; `id` is in [0, kMaxTraceExperts), a weight that is no number is unknown. False, and nothing
  /// added, if the routing holds that expert already.
  [[nodiscard]] bool add(int32_t id, float weight);
  /// Ends a turn: sorts its routings by token and layer and numbers its tokens on from the last turn's. An error if two
  /// routings are of the same token and layer, or if a token is prompt in one and decoded in another.
  void end_turn(const std::string& name);
  /// The whole trace: an error without any routing.
  RoutingTrace finish(const std::string& name);

 private:
  size_t turn_first_ = 0;                                                    // of trace.routings
  std::vector<uint32_t> seen_in_ = std::vector<uint32_t>(kMaxTraceExperts);  // 1 + the last routing that picked it
};

RoutingTrace read_csv_trace(TraceInput& input);
RoutingTrace read_binary_trace(TraceInput& input, int64_t prompt_tokens);

}  // namespace moetier
