// trace: what a model's router chooses over a text, to a file.
#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/support.h"
#include "cli/windows.h"
#include "engine/route_log.h"

namespace moetier::cli {

int run_trace(const Settings& settings) {
  const std::string& out = need(settings, "out");
  refuse_overwriting(settings, "out", {"model", "file", "moe-cache-profile"});
  RunFiles files(settings);
  const std::string text = read_input(need(settings, "file"));
  const auto engine = load_engine(settings, kUsualWindow);
  const auto tokens = engine->tokenizer().encode(text, {.add_special = true, .parse_special = false});
  if (tokens.empty()) fail("{} holds no text to trace", settings.text("file"));
  Context context(*engine, context_options(settings, *engine, usual_window(*engine)));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  context.cancel_on(&interrupted());
  RouteLog log(context, out, trace_kind_of(out), settings.flag("weights"));
  RunRecord record(context, settings.json());
  files.begin(context, record, settings.json());
  Stopwatch watch;
  run_windows(context, tokens, "trace");
  record.meters().mark_prompt(tokens.size(), watch.lap());
  log.finish();
  audit.measure(record.meters());
  files.finish(nullptr);
  log::info("{}: the routing of {} tokens in windows of {}", out, log.tokens(), context.options().context);
  return 0;
}

}  // namespace moetier::cli
