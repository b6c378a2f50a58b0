#include "server/api/reasoning.h"

namespace moetier::server {
namespace {

constexpr int64_t kMostTokens = 2147483647;

/// What the server itself says to a template is not the caller's to say.
bool may_be_given(const std::string& name) {
  return name != "messages" && name != "tools" && name != "bos_token" && name != "eos_token";
}

void merge(Json& into, const Json& from) {
  for (const auto& [name, value] : from.items()) {
    if (may_be_given(name)) into[name] = value;
  }
}

}  // namespace

void begin_reasoning(ChatRequest& chat, const GenerationDefaults& defaults) {
  chat.reasoning_budget = defaults.reasoning_budget;
  chat.split_reasoning = defaults.split_reasoning;
  merge(chat.template_variables, defaults.template_variables);
}

void read_reasoning(const Fields& body, ChatRequest& chat) {
  if (const Json* kwargs = body.object("chat_template_kwargs")) merge(chat.given_variables, *kwargs);
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens"}) {
    if (const auto budget = body.integer(name, -1, kMostTokens)) chat.reasoning_budget = *budget;
  }
  if (const std::string* effort = body.text("reasoning_effort")) ask_effort(chat, *effort);
  if (const auto format = body.choice("reasoning_format", {"none", "auto", "deepseek", "deepseek-legacy"})) {
    chat.split_reasoning = *format != "none";
  }
}

void set_effort(ChatRequest& chat, const std::string& effort) {
  chat.template_variables["reasoning_effort"] = effort;
  if (effort == "none") set_thinking(chat, false);
}

void ask_effort(ChatRequest& chat, const std::string& effort) {
  set_effort(chat, effort);
  if (effort != "none") set_thinking(chat, true);
}

void set_thinking(ChatRequest& chat, bool on) {
  // Families call it by one name or the other.
  for (const char* name : {"enable_thinking", "thinking"}) chat.template_variables[name] = on;
  if (!on) chat.reasoning_budget = 0;
}

void end_reasoning(ChatRequest& chat) {
  if (chat.reasoning_budget == 0) set_thinking(chat, false);
  if (chat.reasoning_budget >= 0) chat.template_variables["thinking_budget"] = chat.reasoning_budget;
  merge(chat.template_variables, chat.given_variables);
}

}  // namespace moetier::server
