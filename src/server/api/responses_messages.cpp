// OpenAI's responses: input items to a conversation.
#include <fmt/format.h>

#include "server/api/chat_messages.h"
#include "server/api/reasoning.h"

namespace moetier::server {
namespace {

/// Calls and thoughts belong to the assistant's message before or around them.
Json& assistant_tail(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  return messages.back();
}

void add_item(const Json& json, const std::string& path, Json& messages) {
  const Fields item(json, path);
  const std::string* type = item.text("type");
  if (type == nullptr || *type == "message") {
    std::string role = item.need_text("role");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant") {
      bad_field(item.path("role"),
                fmt::format("{} must be one of system, developer, user, assistant", item.path("role")));
    }
    const std::string text =
        text_content(item.need("content"), item.path("content"), {"input_text", "output_text", "text", "refusal"});
    // Thoughts that came before it as an item of their own belong to it.
    const bool after_thoughts = role == "assistant" && !messages.empty() && messages.back()["role"] == "assistant" &&
                                messages.back().contains("reasoning_content") && messages.back()["content"] == "" &&
                                !messages.back().contains("tool_calls");
    if (after_thoughts) {
      messages.back()["content"] = text;
    } else {
      messages.push_back({{"role", role}, {"content", text}});
    }
  } else if (*type == "function_call") {
    Json& message = assistant_tail(messages);
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    const std::string* id = item.text("call_id");
    message["tool_calls"].push_back(
        {{"id", id == nullptr ? std::string() : *id},
         {"type", "function"},
         {"function",
          {{"name", item.need_text("name")}, {"arguments", arguments_object(item.need_text("arguments"))}}}});
  } else if (*type == "function_call_output") {
    messages.push_back(
        {{"role", "tool"},
         {"content", text_content(item.need("output"), item.path("output"), {"input_text", "output_text", "text"})},
         {"tool_call_id", item.need_text("call_id")}});
  } else if (*type == "reasoning") {
    std::string text;
    for (const char* name : {"content", "summary"}) {
      const Json* parts = item.array(name);
      if (parts != nullptr && text.empty()) {
        text = text_content(*parts, item.path(name), {"reasoning_text", "summary_text", "text"});
      }
    }
    if (!text.empty()) messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
  } else {
    bad_field(item.path("type"), fmt::format("{} is '{}', which this server does not take", item.path("type"), *type));
  }
}

void read_tools(const Fields& body, ChatRequest& chat) {
  if (const Json* tools = body.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], element("tools", i));
      if (tool.need_text("type") != "function") {
        bad_field(tool.path("type"),
                  fmt::format("{} must be 'function'; this server runs no tools of its own", tool.path("type")));
      }
      chat.tools.push_back(function_tool(tool.need_text("name"), tool.text("description"), tool.object("parameters")));
    }
  }
  read_tool_choice(body, chat);
}

/// What `include` names beside log-probabilities belongs to tools and stored state that are not here.
void read_logprobs(const Fields& body, GenerationParams& params) {
  bool wanted = false;
  if (const Json* include = body.array("include")) {
    for (const Json& name : *include) {
      if (!name.is_string()) body.wrong("include", "an array of texts");
      wanted = wanted || name == "message.output_text.logprobs";
    }
  }
  const auto top = static_cast<int>(body.integer("top_logprobs", 0, kMostProbs).value_or(0));
  if (wanted || top > 0) params.n_probs = top;
}

}  // namespace

ChatRequest read_responses(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model) {
  ChatRequest chat;
  begin_reasoning(chat, defaults);
  chat.params = read_generation(body, defaults, model);
  if (const auto most = body.integer("max_output_tokens", 1, 2147483647)) chat.params.max_tokens = *most;
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (body.has(name)) {
      bad_field(name, fmt::format("{} is not supported: answers are not stored here, so send the whole input", name));
    }
  }
  if (body.boolean("background").value_or(false)) bad_field("background", "background is not supported; leave it out");
  if (const std::string* instructions = body.text("instructions")) {
    chat.messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json& input = body.need("input");
  if (input.is_string()) {
    chat.messages.push_back({{"role", "user"}, {"content", input}});
  } else {
    const Json* items = body.array("input");
    if (items->empty()) bad_field("input", "input is empty; it must be a text or hold at least one item");
    for (size_t i = 0; i < items->size(); ++i) add_item((*items)[i], element("input", i), chat.messages);
  }
  read_tools(body, chat);
  read_logprobs(body, chat.params);
  if (const Json* text = body.object("text")) {
    const Fields t(*text, "text");
    if (const Json* format = t.object("format")) read_response_format(Fields(*format, t.path("format")), chat.params);
  }
  read_reasoning(body, chat);
  if (const Json* reasoning = body.object("reasoning")) {
    if (const std::string* effort = Fields(*reasoning, "reasoning").text("effort")) ask_effort(chat, *effort);
  }
  end_reasoning(chat);
  chat.params.n = 1;
  return chat;
}

}  // namespace moetier::server
