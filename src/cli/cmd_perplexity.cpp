// perplexity: how well a model predicts a text.
#include <fmt/format.h>

#include "base/error.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/route_trace.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/support.h"
#include "engine/perplexity.h"
#include "engine/residency_report.h"
#include "engine/run_record.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

Json report(const PerplexityResult& result, Context& context, const Settings& settings) {
  return {{"perplexity", result.perplexity},
          {"perplexity_error", result.perplexity_error},
          {"mean_nll", result.mean_nll},
          {"mean_nll_error", result.mean_nll_error},
          {"windows", result.windows},
          {"window", result.window},
          {"scored_tokens", result.scored},
          {"cancelled", result.cancelled},
          {"seconds", result.seconds},
          {"config", settings.json()},
          {"model", model_json(context.engine())},
          {"residency", residency_json(context)},
          {"machine", machine_json()}};
}

}  // namespace

int run_perplexity(const Settings& settings) {
  RunFiles files(settings);
  const std::string text = read_input(need(settings, "file"));
  const auto engine = load_engine(settings, settings.integer("window"));
  const Tokenizer& tokenizer = engine->tokenizer();
  PerplexityOptions options;
  options.window = settings.integer("window");
  options.score_all = settings.flag("score-all");
  options.token_by_token = settings.flag("token-by-token");
  options.bos = tokenizer.add_bos() ? tokenizer.bos() : -1;
  const std::string& windows = settings.text("windows");
  options.most_windows = windows == "all" || windows == "-1" ? 0 : settings.integer("windows");
  options.cancel = &interrupted();
  const auto tokens = tokenizer.encode(text, {.add_special = true, .parse_special = false});
  Context context(*engine, context_options(settings, *engine, options.window));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  RunRecord record(context, settings.json());
  const auto trace = open_route_trace(settings, context);
  files.begin(context, record, settings.json(), -1, trace.get());
  if (trace != nullptr && options.token_by_token) trace->begin_decode();
  Stopwatch watch;
  PerplexityResult result;
  {
    Progress progress("perplexity");
    result = perplexity(context, tokens, options, [&](const PerplexityResult& so_far, int64_t all) {
      progress.update(static_cast<uint64_t>(so_far.windows), static_cast<uint64_t>(all),
                      fmt::format("{:.4f} +/- {:.4f}", so_far.perplexity, so_far.perplexity_error));
    });
  }
  // One row at a time is what decoding is.
  const uint64_t rows = context.meters().rows;
  if (options.token_by_token) {
    record.meters().mark_decode(rows, watch.lap());
  } else {
    record.meters().mark_prompt(rows, watch.lap());
  }
  if (result.cancelled && result.windows == 0) throw Cancelled();
  if (settings.flag("json")) {
    print_json(report(result, context, settings));
  } else {
    print_out(fmt::format("perplexity {:.4f} +/- {:.4f} ({} tokens in {} windows of {}, {}){}\n", result.perplexity,
                          result.perplexity_error, result.scored, result.windows, result.window,
                          format_seconds(result.seconds), result.cancelled ? ", cut short" : ""));
  }
  audit.measure(record.meters());
  files.finish(nullptr);
  if (result.cancelled) throw Cancelled();
  return 0;
}

}  // namespace moetier::cli
