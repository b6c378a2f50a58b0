// logits: the logits of every position, to a file.
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/route_trace.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/support.h"
#include "engine/logits_dump.h"

namespace moetier::cli {

int run_logits(const Settings& settings) {
  const std::string& out = need(settings, "out");
  refuse_overwriting(settings, "out", {"model"});
  const std::vector<TokenId> tokens = parse_ids(need(settings, "tokens"));
  if (tokens.empty()) usage_error("--tokens holds no id");
  RunFiles files(settings);
  const auto engine = load_engine(settings, static_cast<int64_t>(tokens.size()));
  Context context(*engine, context_options(settings, *engine, static_cast<int64_t>(tokens.size())));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  context.cancel_on(&interrupted());
  RunRecord record(context, settings.json());
  const auto trace = open_route_trace(settings, context);
  files.begin(context, record, settings.json(), -1, trace.get());
  Stopwatch watch;
  {
    Progress progress("logits");
    dump_logits(context, tokens, out, [&](int64_t done, int64_t total) {
      progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    });
  }
  record.meters().mark_prompt(tokens.size(), watch.lap());
  audit.measure(record.meters());
  files.finish(nullptr);
  log::info("{}: {} positions x {} logits, float32", out, tokens.size(), engine->model().hparams().vocab);
  return 0;
}

}  // namespace moetier::cli
