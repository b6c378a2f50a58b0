// Anthropic's messages: blocks to a conversation.
#include <fmt/format.h>

#include "server/api/chat_messages.h"
#include "server/api/reasoning.h"

namespace moetier::server {
namespace {

/// One message's blocks, as one or several of ours: results of tools are messages of their own.
struct Blocks {
  std::string text, thoughts;
  Json calls = Json::array(), results = Json::array();
};

void add_text(std::string& to, const std::string& text) {
  if (!to.empty() && !text.empty()) to += "\n";
  to += text;
}

/// A document of plain text, its title and context before it.
std::string document_text(const Fields& block) {
  const Json* source = block.object("source");
  if (source == nullptr) block.wrong("source", "an object");
  const Fields s(*source, block.path("source"));
  const std::string& type = s.need_text("type");
  std::string body;
  if (type == "text") {
    body = s.need_text("data");
  } else if (type == "content") {
    body = text_content(s.need("content"), s.path("content"), {"text"});
  } else {
    bad_field(s.path("type"), fmt::format("{} is '{}', and this server takes only documents of plain text: the types "
                                          "text and content",
                                          s.path("type"), type));
  }
  std::string text;
  for (const char* name : {"title", "context"}) {
    if (const std::string* said = block.text(name)) add_text(text, *said);
  }
  add_text(text, body);
  return text;
}

/// `thinking` and the effort.
void read_thinking(const Fields& body, ChatRequest& chat) {
  read_reasoning(body, chat);
  if (const Json* thinking = body.object("thinking")) {
    const Fields f(*thinking, "thinking");
    const auto type = f.choice("type", {"enabled", "disabled", "adaptive"});
    if (!type) f.need_text("type");
    const auto budget = f.integer("budget_tokens", 0, 2147483647);
    if (*type != "disabled" && budget) chat.reasoning_budget = *budget;
    set_thinking(chat, *type != "disabled");
  }
  if (const Json* config = body.object("output_config")) {
    // How hard to think; whether to think is said by `thinking`.
    if (const std::string* effort = Fields(*config, "output_config").text("effort")) set_effort(chat, *effort);
  }
  end_reasoning(chat);
}

/// The answer's schema: output_config.format, or output_format as the beta called it.
void read_format(const Fields& body, GenerationParams& params) {
  const Json* old = body.object("output_format");
  if (old != nullptr) read_response_format(Fields(*old, "output_format"), params);
  if (const Json* config = body.object("output_config")) {
    const Fields f(*config, "output_config");
    if (const Json* format = f.object("format")) {
      if (old != nullptr) {
        bad_field("output_format", "output_format and output_config.format say the same; give one of them");
      }
      read_response_format(Fields(*format, f.path("format")), params);
    }
  }
}

void add_block(const Json& json, const std::string& path, bool assistant, Blocks& out) {
  const Fields block(json, path);
  const std::string& type = block.need_text("type");
  if (type == "text") {
    add_text(out.text, block.need_text("text"));
  } else if (type == "document" && !assistant) {
    add_text(out.text, document_text(block));
  } else if (type == "thinking" && assistant) {
    add_text(out.thoughts, block.need_text("thinking"));
  } else if (type == "redacted_thinking" && assistant) {
    return;
  } else if (type == "tool_use" && assistant) {
    const Json* input = block.object("input");
    if (input == nullptr) block.wrong("input", "an object");
    out.calls.push_back({{"id", block.need_text("id")},
                         {"type", "function"},
                         {"function", {{"name", block.need_text("name")}, {"arguments", *input}}}});
  } else if (type == "tool_result" && !assistant) {
    const Json* content = block.find("content");
    std::string text = content == nullptr ? "" : text_content(*content, block.path("content"), {"text"});
    if (block.boolean("is_error").value_or(false)) text = "Error: " + text;
    out.results.push_back({{"role", "tool"}, {"content", text}, {"tool_call_id", block.need_text("tool_use_id")}});
  } else {
    bad_field(block.path("type"), fmt::format("{} is '{}', which this server does not take in {} message",
                                              block.path("type"), type, assistant ? "an assistant's" : "a user's"));
  }
}

void add_message(const Json& json, const std::string& path, Json& messages) {
  const Fields m(json, path);
  const auto role = m.choice("role", {"user", "assistant"});
  if (!role) m.need_text("role");
  const bool assistant = *role == "assistant";
  const Json& content = m.need("content");
  Blocks blocks;
  if (content.is_string()) {
    blocks.text = content.get<std::string>();
  } else {
    const Json* array = m.array("content");
    for (size_t i = 0; i < array->size(); ++i) {
      add_block((*array)[i], element(m.path("content"), i), assistant, blocks);
    }
  }
  for (Json& result : blocks.results) messages.push_back(std::move(result));
  if (!assistant && blocks.text.empty() && !blocks.results.empty()) return;
  Json message = {{"role", *role}, {"content", blocks.text}};
  if (!blocks.thoughts.empty()) message["reasoning_content"] = blocks.thoughts;
  if (!blocks.calls.empty()) message["tool_calls"] = blocks.calls;
  messages.push_back(std::move(message));
}

void read_tools(const Fields& body, ChatRequest& chat) {
  if (const Json* tools = body.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], element("tools", i));
      if (const std::string* type = tool.text("type"); type != nullptr && *type != "custom") {
        bad_field(tool.path("type"),
                  fmt::format("{} is '{}', and this server runs no tools of its own", tool.path("type"), *type));
      }
      const Json* schema = tool.object("input_schema");
      if (schema == nullptr) tool.wrong("input_schema", "an object");
      chat.tools.push_back(function_tool(tool.need_text("name"), tool.text("description"), schema));
    }
  }
  const Json* choice = body.object("tool_choice");
  if (choice == nullptr) return;
  const Fields f(*choice, "tool_choice");
  const auto type = f.choice("type", {"auto", "any", "tool", "none"});
  if (!type) f.need_text("type");
  if (*type == "none") chat.choice = ToolChoice::none;
  if (*type == "any" || *type == "tool") chat.choice = ToolChoice::required;
  if (*type == "tool") chat.allowed_tools = {f.need_text("name")};
  chat.parallel_tools = !f.boolean("disable_parallel_tool_use").value_or(false);
  if (chat.choice == ToolChoice::required && chat.tools.empty()) {
    bad_field("tool_choice", "tool_choice wants a tool called, and there are no tools");
  }
}

}  // namespace

ChatRequest read_anthropic(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model) {
  ChatRequest chat;
  begin_reasoning(chat, defaults);
  chat.params = read_generation(body, defaults, model);
  for (std::string& stop : body.texts("stop_sequences")) {
    if (stop.empty()) bad_field("stop_sequences", "stop_sequences holds an empty text");
    chat.params.stop.push_back(std::move(stop));
  }
  if (const Json* system = body.find("system")) {
    chat.messages.push_back({{"role", "system"}, {"content", text_content(*system, "system", {"text"})}});
  }
  const Json& messages = need_messages(body);
  for (size_t i = 0; i < messages.size(); ++i) add_message(messages[i], element("messages", i), chat.messages);
  read_tools(body, chat);
  read_thinking(body, chat);
  read_format(body, chat.params);
  chat.params.n = 1;
  return chat;
}

}  // namespace moetier::server
