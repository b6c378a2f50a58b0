// The audit log: one JSON object a line about what a process did with a model, in the reference's format
// (docs/server.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/context.h"
#include "server/request.h"

namespace moetier {

/// What a run was asked for, as `load` tells it.
struct AuditParams {
  int64_t cache_mib = 0;  ///< as asked; 0 = none, or from memory
  bool adaptive = false;
  int64_t gpu_layers = 0;
  int threads = 0;
  std::vector<std::string> tensor_overrides;
  std::string profile;  ///< path; empty = none
};

/// A run's throughput after the warm-up.
struct AuditPerf {
  int64_t n_prompt = 0, n_gen = 0;  ///< prompt rows computed, tokens sampled
  double prompt_seconds = 0, gen_seconds = 0;
};

/// Each record is written by a single open, append and close, so the log is whole up to its last record, and several
/// processes can share one file. A record that cannot be written later than the first is said once, and the run goes
/// on. Waits for a batch that is computed; one thread at a time.
class AuditLog {
 public:
  /// Writes `load`, so make it right after the context, before anything is computed. Errors: a file that cannot be
  /// written to.
  AuditLog(std::string path, Context& context, const AuditParams& params);
  /// The model is loaded and warm.
  void ready(Context& context);
  /// A request is over. Adds to what exit() tells.
  void request(Context& context, const RequestResult& result);
  /// The run is over; of a server, by what its requests were.
  void exit(Context& context);
  void exit(Context& context, const AuditPerf& perf);

 private:
  nlohmann::ordered_json record(std::string_view event, Context& context) const;
  void write(const nlohmann::ordered_json& record) const;
  std::string path_;
  AuditPerf perf_;
};

}  // namespace moetier
