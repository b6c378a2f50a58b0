// Writes a routing trace while a context runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/context.h"
#include "engine/generate.h"

namespace moetier {

enum class TraceKind : uint8_t { csv, binary };

/// Binary, unless the name ends in .csv.
TraceKind trace_kind_of(const std::string& path);

/// Takes the context's observe_picks() for as long as it lives, which must be less than the context does. Rows are
/// numbered as they are computed, prompt and decoded ones alike; so a context must run one sequence at a time for its
/// tokens to be in their order. A CSV has each ubatch layer by layer, as it was computed, and reaches the file with
/// every ubatch, with a column for dropped picks if the context drops cold ones; a binary trace is written token by
/// token, and appears at finish(). As a watcher of generations it knows their prompts from what they decode.
class RouteLog final : public GenerateWatcher {
 public:
  /// Without `weights`, a binary trace gets zeros instead. Errors: a model without experts, a file that cannot be
  /// written. A write that fails later ends a CSV, which is said once, and stops nothing else; of a binary trace, it
  /// fails the batch.
  RouteLog(Context& context, const std::string& path, TraceKind kind, bool weights = true);
  ~RouteLog() override;  ///< a binary trace without finish() is dropped
  RouteLog(const RouteLog&) = delete;
  RouteLog& operator=(const RouteLog&) = delete;

  /// What follows is the prompt of a turn, whose tokens are numbered from 0 again (at first it is so already).
  void begin_turn();
  /// What follows, up to the next turn, is decoded.
  void begin_decode();
  int64_t tokens() const;  ///< rows that passed all layers so far
  /// Errors: what could not be written, now or before.
  void finish();

  void started() override { begin_turn(); }
  void prompt_done(int64_t, double) override { begin_decode(); }
  void token_done(TokenId, const TokenTimes&) override {}

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
