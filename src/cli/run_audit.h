// --moe-cache-audit: the audit log of a subcommand that loads a model.
#pragma once

#include <memory>
#include <optional>

#include "cli/settings.h"
#include "engine/generate.h"
#include "engine/run_meters.h"
#include "server/audit.h"

namespace moetier::cli {

/// What `load` is to say of the settings.
AuditParams audit_params(const Settings& settings);

/// Writes `load` and gives the log; nullptr if --moe-cache-audit is not given. Right after the context was made.
/// Errors (usage): a log that is the model or another file that is read.
std::unique_ptr<AuditLog> open_audit(const Settings& settings, Context& context);

/// The log of a run: `load` when it is made, `exit` when it goes, also on an error. To live shorter than the context.
class RunAudit {
 public:
  RunAudit(const Settings& settings, Context& context) : log_(open_audit(settings, context)), context_(context) {}
  ~RunAudit();
  RunAudit(const RunAudit&) = delete;
  RunAudit& operator=(const RunAudit&) = delete;
  /// What `exit` tells of speed: as it is now.
  void measure(const RunMeters& meters);
  void measure(const GenerateResult& result);  ///< adds it
  void measure_prompt(size_t tokens, double seconds);

  // Of a chat: ready before the first answer, and a request for each.
  void ready();
  void begin_turn();
  void end_turn(const GenerateResult& result);

 private:
  std::unique_ptr<AuditLog> log_;  // null: nobody asked
  Context& context_;
  AuditPerf perf_;
  StoreCounters before_;  // of the turn
  uint64_t turns_ = 0;
};

}  // namespace moetier::cli
