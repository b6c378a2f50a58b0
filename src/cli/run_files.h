// What a run leaves behind besides its result: the record, the stats, the log of tokens, and lines on standard error.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "cli/param.h"
#include "cli/settings.h"
#include "engine/route_log.h"
#include "engine/run_record.h"
#include "engine/token_log.h"

namespace moetier::cli {

ParamList stats_params();  ///< --stats-json
ParamList token_params();  ///< --csv and --progress

/// Opens its files before any work, so that a wrong path is told at once, and writes them at the end. A file that
/// cannot be written (a full disk) loses nothing else: the rest is written, and then it is an error.
class RunFiles {
 public:
  explicit RunFiles(const Settings& settings);
  /// `config`: every parameter with its resolved value. `steps`: tokens wanted, -1 = not known. `trace`, if any,
  /// watches too, and is finished with the others; it must live until then.
  void begin(Context& context, RunRecord& record, const nlohmann::ordered_json& config, int64_t steps = -1,
             RouteLog* trace = nullptr);
  GenerateWatcher* watcher() { return watchers_.get(); }
  void add_text(std::string_view text);
  /// Lines on standard error and the files. `json`: the whole record, for --record. Errors: what could not be written.
  void finish(const nlohmann::ordered_json& json);

 private:
  const Settings& settings_;
  std::unique_ptr<AtomicFile> record_file_, stats_file_;
  std::unique_ptr<LogFile> csv_file_;
  std::unique_ptr<TokenLog> log_;
  std::unique_ptr<Watchers> watchers_;
  Context* context_ = nullptr;
  RunRecord* record_ = nullptr;
  RouteLog* trace_ = nullptr;
};

}  // namespace moetier::cli
