// run: continue a text, or chat.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/constraint.h"
#include "cli/route_trace.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/sampling.h"
#include "cli/session.h"
#include "cli/support.h"
#include "engine/run_record.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

bool wants_chat(const Settings& settings) {
  if (settings.is_set("chat")) return settings.flag("chat");
  return !settings.is_set("prompt") && !settings.is_set("file") && ::isatty(STDIN_FILENO) == 1;
}

std::string prompt_text(const Settings& settings) {
  if (settings.is_set("prompt") && settings.is_set("file")) usage_error("--prompt and --file exclude each other");
  if (settings.is_set("prompt")) return settings.text("prompt");
  if (!settings.is_set("file") && ::isatty(STDIN_FILENO) == 0) log::info("the prompt comes from standard input");
  std::string text = read_input(settings.is_set("file") ? settings.text("file") : "-");
  if (text.ends_with('\n')) text.pop_back();  // an editor's or echo's, not the author's
  return text;
}

/// Whether the account goes where the text goes: a terminal, or one pipe or file for both.
bool shares_output() {
  struct stat out {
  }, err{};
  if (::isatty(STDOUT_FILENO) == 1) return true;
  if (::fstat(STDOUT_FILENO, &out) != 0 || ::fstat(STDERR_FILENO, &err) != 0) return false;
  const bool one = out.st_dev == err.st_dev && out.st_ino == err.st_ino;
  return one && !S_ISCHR(out.st_mode) && log::level() >= log::Level::info;
}

/// Continues the prompt; returns what the record says of it.
Json continue_text(Context& context, Session& session, const GenerateOptions& options, const Settings& settings,
                   RunTimes& times, RunFiles& files) {
  const Tokenizer& tokenizer = context.engine().tokenizer();
  const std::string prompt = prompt_text(settings);
  const auto ids = tokenizer.encode(prompt, {.add_special = settings.flag("bos"), .parse_special = true});
  if (ids.empty()) usage_error("the prompt is empty; give one with --prompt or --file");
  const bool show = !settings.flag("json");
  if (show && settings.flag("echo")) print_out(prompt);
  const GenerateResult result =
      generate(context, session.sequence, session.held, ids, options, [&](std::string_view text) {
        if (show) print_out(text);
        files.add_text(text);
        return true;
      });
  times.add(result);
  if (show && shares_output()) print_out("\n");
  if (result.reason == StopReason::context_full) {
    log::warn("the context of {} positions is full; --ctx makes it larger", context.options().context);
  }
  return {{"prompt", prompt}, {"text", result.text}, {"tokens", result.tokens}, {"stop", to_string(result.reason)}};
}

}  // namespace

int run_run(const Settings& settings) {
  const bool chat = wants_chat(settings);
  if (chat && (settings.is_set("prompt") || settings.is_set("file")))
    usage_error("--chat and a prompt exclude each other");
  for (const char* flag : {"system", "chat-template"}) {
    if (!chat && settings.is_set(flag)) usage_error("--{} is for a chat; add --chat, or leave it out", flag);
  }
  GenerateOptions options = generate_options(settings);
  RunFiles files(settings);
  const auto engine = load_engine(settings);
  options.constraint = make_constraint(settings, engine->tokenizer());
  Context context(*engine, context_options(settings, *engine));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  Session session(settings, context);  // lives until the record is made, which tells what it took
  Json config = settings.json();
  config["seed"]["value"] = options.sampler.seed;
  config["threads"]["value"] = thread_count(settings);
  config["ctx"]["value"] = context.options().context;
  RunRecord record(context, config);
  const auto trace = open_route_trace(settings, context);
  files.begin(context, record, config, options.max_tokens, trace.get());
  options.watcher = files.watcher();
  options.cancel = &interrupted();  // not before: while it loads, Ctrl-C ends the process at once
  Json said;
  if (chat) {
    said = {{"messages", run_chat(context, session, options, settings, record.times(), files, audit)}};
  } else {
    said = continue_text(context, session, options, settings, record.times(), files);
  }
  session.save();
  audit.measure(record.meters());
  log::info("{}", account_line(record.times(), context));
  Json json = record.json();
  json.update(said);
  if (settings.flag("json")) print_json(json);
  files.finish(json);
  if (!chat && interrupted()) fail("interrupted: the text ends early");
  return 0;
}

}  // namespace moetier::cli
