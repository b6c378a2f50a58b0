// trace: what a model's router chooses over a text, to a file.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/support.h"
#include "engine/route_log.h"

namespace moetier::cli {
namespace {

constexpr int64_t kUsualWindow = 4096;

/// Runs the tokens in windows of the context's size, each as a prompt of its own.
void run_windows(Context& context, std::span<const TokenId> tokens) {
  Progress progress("trace");
  const ContextOptions& options = context.options();
  const auto window = static_cast<size_t>(options.context);
  const auto step = static_cast<size_t>(options.group_rows);
  SequenceState sequence = context.new_sequence();
  std::vector<BatchRow> rows;
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    if (first % window == 0) sequence.truncate(0);
    end = std::min({first + step, first - first % window + window, tokens.size()});
    rows.clear();
    for (size_t i = first; i < end; ++i) rows.push_back({tokens[i], &sequence, false});
    context.decode(rows);
    progress.update(end, tokens.size());
  }
}

}  // namespace

int run_trace(const Settings& settings) {
  const std::string& out = need(settings, "out");
  refuse_overwriting(settings, "out", {"model", "file", "moe-cache-profile"});
  RunFiles files(settings);
  const std::string text = read_input(need(settings, "file"));
  const auto engine = load_engine(settings, kUsualWindow);
  const int64_t own = engine->model().hparams().context_length;
  const int64_t window = own > 0 ? std::min(own, kUsualWindow) : kUsualWindow;
  const auto tokens = engine->tokenizer().encode(text, {.add_special = true, .parse_special = false});
  if (tokens.empty()) fail("{} holds no text to trace", settings.text("file"));
  Context context(*engine, context_options(settings, *engine, window));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  context.cancel_on(&interrupted());
  RouteLog log(context, out, trace_kind_of(out), settings.flag("weights"));
  RunRecord record(context, settings.json());
  files.begin(context, record, settings.json());
  Stopwatch watch;
  run_windows(context, tokens);
  record.meters().mark_prompt(tokens.size(), watch.lap());
  log.finish();
  audit.measure(record.meters());
  files.finish(nullptr);
  log::info("{}: the routing of {} tokens in windows of {}", out, log.tokens(), context.options().context);
  return 0;
}

}  // namespace moetier::cli
