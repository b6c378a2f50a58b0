// Writes a routing trace while a context runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/context.h"

namespace moetier {

enum class TraceKind : uint8_t { csv, binary };

/// Binary, unless the name ends in .csv.
TraceKind trace_kind_of(const std::string& path);

/// Takes the context's observe_picks() for as long as it lives, which must be less than the context does. Rows are
/// numbered as they are computed, prompt and decoded ones alike; so a context must run one sequence at a time for its
/// tokens to be in their order. A CSV has each ubatch layer by layer, as it was computed, and reaches the file with
/// every ubatch; a binary trace is written token by token, and appears at finish().
class RouteLog {
 public:
  /// Without `weights`, a binary trace gets zeros instead. Errors: a model without experts, a file that cannot be
  /// written. A write that fails later fails the batch.
  RouteLog(Context& context, const std::string& path, TraceKind kind, bool weights = true);
  ~RouteLog();  ///< a binary trace without finish() is dropped
  RouteLog(const RouteLog&) = delete;
  RouteLog& operator=(const RouteLog&) = delete;

  /// What follows is the prompt of a turn, whose tokens are numbered from 0 again (at first it is so already).
  void begin_turn();
  /// What follows, up to the next turn, is decoded.
  void prompt_done();
  int64_t tokens() const;  ///< rows that passed all layers so far
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
