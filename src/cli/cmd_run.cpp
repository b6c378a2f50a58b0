// run: continue a text, or chat.
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/sampling.h"
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
  return read_input(settings.is_set("file") ? settings.text("file") : "-");
}

/// Continues the prompt; returns what the record says of it.
Json continue_text(Context& context, SequenceState& sequence, const GenerateOptions& options, const Settings& settings,
                   RunTimes& times) {
  const Tokenizer& tokenizer = context.engine().tokenizer();
  const std::string prompt = prompt_text(settings);
  const auto ids = tokenizer.encode(prompt, {.add_special = settings.flag("bos"), .parse_special = true});
  if (ids.empty()) usage_error("the prompt is empty; give one with --prompt or --file");
  const bool show = !settings.flag("json");
  if (show && settings.flag("echo")) print_out(prompt);
  std::vector<TokenId> held;
  const GenerateResult result = generate(context, sequence, held, ids, options, [&](std::string_view text) {
    if (show) print_out(text);
    return true;
  });
  times.add(result);
  if (show && ::isatty(STDOUT_FILENO) == 1) print_out("\n");
  if (result.reason == StopReason::context_full) {
    log::warn("the context of {} positions is full; --ctx makes it larger", context.options().context);
  }
  return {{"prompt", prompt}, {"text", result.text}, {"tokens", result.tokens}, {"stop", to_string(result.reason)}};
}

/// The place of --record, opened before any work so that a wrong path is told at once; null if there is none.
std::unique_ptr<AtomicFile> open_record(const Settings& settings) {
  refuse_overwriting(settings, "record", {"model", "file", "chat-template"});
  return settings.is_set("record") ? std::make_unique<AtomicFile>(settings.text("record")) : nullptr;
}

}  // namespace

int run_run(const Settings& settings) {
  const bool chat = wants_chat(settings);
  if (chat && (settings.is_set("prompt") || settings.is_set("file")))
    usage_error("--chat and a prompt exclude each other");
  for (const char* flag : {"system", "chat-template"}) {
    if (!chat && settings.is_set(flag)) usage_error("--{} is for a chat; add --chat, or leave it out", flag);
  }
  const GenerateOptions options = generate_options(settings);
  const auto record_file = open_record(settings);
  const auto engine = load_engine(settings);
  Context context(*engine, context_options(settings, *engine));
  SequenceState sequence = context.new_sequence();  // lives until the record is made, which tells what it took
  Json config = settings.json();
  config["seed"]["value"] = options.sampler.seed;
  config["threads"]["value"] = thread_count(settings);
  config["ctx"]["value"] = context.options().context;
  RunRecord record(context, std::move(config));
  Json said;
  if (chat) {
    said = {{"messages", run_chat(context, sequence, options, settings, record.times())}};
  } else {
    said = continue_text(context, sequence, options, settings, record.times());
  }
  log::info("{}", account_line(record.times(), context));
  Json json = record.json();
  json.update(said);
  if (settings.flag("json")) print_json(json);
  if (record_file != nullptr) {
    record_file->write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    record_file->commit();
  }
  if (!chat && interrupted()) fail("interrupted: the text ends early");
  return 0;
}

}  // namespace moetier::cli
