#include "server/api/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "engine/json_schema.h"
#include "server/api/answer_grammar.h"

namespace moetier::server {
namespace {

/// A template that says nothing of tools: they are described in the system message, in the words that most models were
/// trained with, and calls and their results in the history are written out.
Json tools_in_words(const ChatRequest& chat) {
  std::string text =
      "You can call functions to help with the request. Their signatures stand within <tools></tools>:\n<tools>\n";
  for (const Json& tool : chat.tools) text += tool.dump() + "\n";
  text +=
      "</tools>\nTo call one, answer with a JSON object of its name and its arguments within <tool_call></tool_call>:\n"
      "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {...}}\n</tool_call>";
  Json messages = Json::array();
  messages.push_back({{"role", "system"}, {"content", text}});
  for (const Json& message : chat.messages) {
    Json plain = message;
    std::string content = message.value("content", std::string());
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      for (const Json& call : *calls) {
        const Json& function = call["function"];
        const Json said = {{"name", function["name"]}, {"arguments", function["arguments"]}};
        content += fmt::format("{}<tool_call>\n{}\n</tool_call>", content.empty() ? "" : "\n", said.dump());
      }
      plain.erase("tool_calls");
    }
    if (message["role"] == "tool") {
      plain["role"] = "user";
      content = fmt::format("<tool_response>\n{}\n</tool_response>", content);
    }
    plain["content"] = content;
    if (message["role"] == "system" && messages.size() == 1) {
      messages[0]["content"] = content + "\n\n" + text;
    } else {
      messages.push_back(std::move(plain));
    }
  }
  return messages;
}

bool uses_tools(const ChatRequest& chat) {
  return !chat.tools.empty() && chat.choice != ToolChoice::none;
}

/// The tools that may be called: all, or those that tool_choice names.
Json callable(const ChatRequest& chat) {
  if (chat.allowed_tools.empty()) return chat.tools;
  Json out = Json::array();
  for (const std::string& name : chat.allowed_tools) {
    const auto tool = std::find_if(chat.tools.begin(), chat.tools.end(),
                                   [&](const Json& one) { return one["function"]["name"] == name; });
    if (tool == chat.tools.end()) {
      bad_field("tool_choice", fmt::format("tool_choice names the tool '{}', which is not among tools", name));
    }
    if (std::find(out.begin(), out.end(), *tool) == out.end()) out.push_back(*tool);
  }
  return out;
}

/// What the last message begins, if it is the assistant's: the answer goes on with it.
std::string take_prefill(Json& messages) {
  if (messages.empty() || messages.back().value("role", "") != "assistant" || messages.back().contains("tool_calls")) {
    return "";
  }
  std::string text = messages.back().value("content", std::string());
  if (!text.empty()) messages.erase(messages.size() - 1);
  return text;
}

struct Rendered {
  std::string prompt;
  ChatFormat format;
  bool in_reasoning;
};

Rendered render(const ChatRequest& chat, const ServedModel& model) {
  const bool described = uses_tools(chat) && (!model.template_has_tools() || model.format() == ChatFormat::plain);
  Json variables = chat.template_variables;
  variables["messages"] = described ? tools_in_words(chat) : chat.messages;
  if (uses_tools(chat) && !described) variables["tools"] = chat.tools;
  const std::string prefill = take_prefill(variables["messages"]);
  Rendered out{.prompt = "", .format = described ? ChatFormat::hermes : model.format(), .in_reasoning = false};
  out.prompt = model.render(std::move(variables));
  out.in_reasoning = prompt_opens_reasoning(out.format, out.prompt);
  const ThoughtEnding ending = thought_ending(out.format, model.template_source(), out.prompt);
  if (chat.reasoning_budget == 0 && out.in_reasoning) {
    out.prompt += ending.text();
    out.in_reasoning = false;
  }
  if (!prefill.empty()) {
    if (out.in_reasoning) out.prompt += ending.text();  // the answer has begun, so thinking is over
    out.prompt += prefill;
    out.in_reasoning = false;
  }
  return out;
}

/// Says what a tool's schema asks for and calls are not held to, each only once: clients send their tools every time.
void tell_loosened(const std::vector<LoosenedTool>& loosened) {
  constexpr size_t kMost = 1000;
  static std::mutex mutex;
  static std::set<std::string> told;
  for (const LoosenedTool& one : loosened) {
    const std::string text =
        one_line(fmt::format("calls of the tool '{}' are not held to all of its schema, but to it without {}",
                             one.tool.substr(0, 64), one.what.substr(0, 400)));
    const std::scoped_lock lock(mutex);
    if (told.size() >= kMost) told.clear();
    if (told.insert(text).second) log::info("{}", text);
  }
}

/// Whether an answer under a grammar may think first: the prompt has begun a thought, or the template knows thoughts
/// and nobody has switched them off. A model that was never taught to end a thought would go on with it for ever.
bool may_think(const ChatRequest& chat, const PreparedChat& out, const ServedModel& model) {
  if (out.output.in_reasoning) return true;
  if (chat.reasoning_budget == 0 || prompt_closes_reasoning(out.format, out.prompt)) return false;
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (chat.template_variables.value(name, Json()) == false) return false;
  }
  return template_thinks(out.format, model.template_source());
}

/// Whether a document may have a thought before it. Where neither prompt nor caller begins one it stands at once.
ThoughtBefore thought_before(const ChatRequest& chat, const PreparedChat& out, const ServedModel& model) {
  if (out.output.in_reasoning) return ThoughtBefore::opened;
  const bool asked = chat.template_variables.value("enable_thinking", Json()) == true;
  return asked && may_think(chat, out, model) ? ThoughtBefore::possible : ThoughtBefore::none;
}

void add_grammar(const ChatRequest& chat, PreparedChat& out, const ServedModel& model) {
  const GenerationParams& p = chat.params;
  std::string document = p.grammar;
  if (p.schema) {
    document = json_schema_grammar(*p.schema, {.prefix = "document-"});
  } else if (p.json_object) {
    document = json_object_grammar({.prefix = "document-"});
  }
  ToolGrammar calls;
  if (uses_tools(chat)) {
    const bool required = chat.choice == ToolChoice::required;
    const ToolGrammarOptions options{.choice = required || !document.empty() ? ToolGrammarOptions::Choice::required
                                                                             : ToolGrammarOptions::Choice::automatic,
                                     .parallel = chat.parallel_tools,
                                     .in_reasoning = out.output.in_reasoning,
                                     .may_think = may_think(chat, out, model)};
    try {
      calls = tool_grammar(out.format, callable(chat), options);
      tell_loosened(calls.loosened);
    } catch (const Error& error) {
      if (required || error.kind() != ErrorKind::usage) throw ApiError(400, error.what(), "tools");
      log::info("tool calls are not held to their schemas: {}", one_line(error.what()));
    }
    if (required) document.clear();  // an answer that must be a call is no document
  }
  out.output.call_parts = !calls.gbnf.empty() && p.grammar.empty();
  if (document.empty()) {
    out.gbnf = std::move(calls.gbnf);
    out.triggers = std::move(calls.triggers);
    return;
  }
  // A grammar of the caller's own is meant for the output as it comes; a document stands where the answer stands.
  out.gbnf = p.grammar.empty() ? answer_grammar(out.format, document, thought_before(chat, out, model)) : document;
  if (!calls.gbnf.empty() && p.grammar.empty()) out.gbnf = either_grammar(out.gbnf, calls.gbnf);
}

}  // namespace

std::string render_chat(const ChatRequest& chat, const ServedModel& model) {
  return render(chat, model).prompt;
}

PreparedChat prepare_chat(const ChatRequest& chat, const ServedModel& model) {
  Rendered rendered = render(chat, model);
  PreparedChat out;
  out.format = rendered.format;
  out.control_text = chat_format_needs_control_text(out.format);
  out.output = {.reasoning = chat.split_reasoning,
                .tools = uses_tools(chat),
                .in_reasoning = rendered.in_reasoning,
                .tool_list = chat.tools};
  out.tokens = model.encode_rendered(rendered.prompt);
  out.thoughts = {.format = out.format,
                  .in_reasoning = rendered.in_reasoning,
                  .tools = uses_tools(chat),
                  .budget = chat.reasoning_budget,
                  .ending = thought_ending(out.format, model.template_source(), rendered.prompt)};
  out.prompt = std::move(rendered.prompt);
  try {
    add_grammar(chat, out, model);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "response_format");
  }
  return out;
}

}  // namespace moetier::server
