#include "cli/chat.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string template_source(const Settings& settings, const Tokenizer& tokenizer) {
  if (settings.is_set("chat-template")) return read_input(settings.text("chat-template"));
  if (tokenizer.chat_template().empty()) {
    usage_error("{} has no chat template; continue a text with --prompt, or pass a template with --chat-template",
                settings.text("model"));
  }
  return tokenizer.chat_template();
}

/// One line from standard input without its end; false at the end of input or after Ctrl-C.
bool read_line(std::string& line) {
  if (::isatty(STDIN_FILENO) == 1) std::fputs("> ", stderr);
  return static_cast<bool>(std::getline(std::cin, line)) && !interrupted();
}

}  // namespace

std::vector<TokenId> chat_prompt(const ChatTemplate& chat, const Json& messages, const Tokenizer& tokenizer) {
  Json variables = {{"messages", messages}, {"add_generation_prompt", true}};
  std::string bos;
  if (tokenizer.bos() >= 0) bos = tokenizer.text(tokenizer.bos());
  variables["bos_token"] = bos;
  if (tokenizer.eos() >= 0) variables["eos_token"] = tokenizer.text(tokenizer.eos());
  const std::string text = chat.render(variables);
  const bool has_bos = !bos.empty() && text.starts_with(bos);
  return tokenizer.encode(text, {.add_special = !has_bos, .parse_special = true});
}

Json run_chat(Context& context, Session& session, const GenerateOptions& options, const Settings& settings,
              RunTimes& times, RunFiles& files, RunAudit& audit) {
  const Tokenizer& tokenizer = context.engine().tokenizer();
  const ChatTemplate chat(template_source(settings, tokenizer));
  Json messages = Json::array();
  if (settings.is_set("system")) messages.push_back({{"role", "system"}, {"content", settings.text("system")}});
  const bool show = !settings.flag("json");
  std::string line;
  audit.ready();
  if (::isatty(STDIN_FILENO) == 1) log::info("a line is a message; Ctrl-C stops a reply, Ctrl-D ends the chat");
  while (read_line(line)) {
    if (line.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    audit.begin_turn();
    GenerateOptions answer = options;
    if (options.constraint != nullptr) answer.constraint = options.constraint->clone();  // each answer begins anew
    const GenerateResult result = generate(context, session.sequence, session.held,
                                           chat_prompt(chat, messages, tokenizer), answer, [&](std::string_view text) {
                                             if (show) print_out(text);
                                             files.add_text(text);
                                             return true;
                                           });
    audit.end_turn(result);
    if (show) print_out("\n");
    messages.push_back({{"role", "assistant"}, {"content", result.text}});
    times.add(result);
    if (result.reason == StopReason::context_full) {
      fail("the chat has filled the context of {} positions; start again with a larger --ctx",
           context.options().context);
    }
    if (result.reason == StopReason::cancelled) forget_interrupt();
  }
  if (::isatty(STDIN_FILENO) == 1) std::fputc('\n', stderr);
  return messages;
}

}  // namespace moetier::cli
