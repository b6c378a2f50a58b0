#include "server/api/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/reasoning.h"

namespace moetier::server {

std::string text_content(const Json& content, const std::string& path, std::initializer_list<std::string_view> kinds) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) bad_field(path, fmt::format("{} must be a string or an array of parts", path));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = element(path, i);
    if (content[i].is_string()) {
      text += (i > 0 ? "\n" : "") + content[i].get<std::string>();
      continue;
    }
    const Fields part(content[i], where);
    const std::string& type = part.need_text("type");
    if (std::find(kinds.begin(), kinds.end(), type) == kinds.end()) {
      bad_field(part.path("type"), fmt::format("{} is '{}', and this server takes only text", part.path("type"), type));
    }
    if (i > 0) text += "\n";
    text += part.need_text(type == "refusal" ? "refusal" : "text");
  }
  return text;
}

Json arguments_object(const std::string& text) {
  if (text.empty()) return Json::object();
  Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_object() ? parsed : Json(text);
}

const Json& need_messages(const Fields& body) {
  const Json* messages = body.array("messages");
  if (messages == nullptr) body.wrong("messages", "an array with at least one message");
  if (messages->empty()) bad_field("messages", "messages is empty; it must hold at least one message");
  return *messages;
}

Json function_tool(const std::string& name, const std::string* description, const Json* parameters) {
  Json function = {{"name", name}};
  if (description != nullptr) function["description"] = *description;
  function["parameters"] =
      parameters != nullptr ? *parameters : Json{{"type", "object"}, {"properties", Json::object()}};
  return {{"type", "function"}, {"function", function}};
}

namespace {

Json openai_calls(const Json& calls, const std::string& path) {
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const Fields call(calls[i], element(path, i));
    const Json* function = call.object("function");
    if (function == nullptr) call.wrong("function", "an object");
    const Fields f(*function, call.path("function"));
    const Json* arguments = f.find("arguments");
    Json given = Json::object();
    if (arguments != nullptr && arguments->is_object()) {
      given = *arguments;
    } else if (const std::string* text = f.text("arguments")) {
      given = arguments_object(*text);
    }
    const std::string* id = call.text("id");
    out.push_back({{"id", id == nullptr ? std::string() : *id},
                   {"type", "function"},
                   {"function", {{"name", f.need_text("name")}, {"arguments", given}}}});
  }
  return out;
}

Json openai_message(const Json& json, const std::string& path) {
  const Fields m(json, path);
  std::string role = m.need_text("role");
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    bad_field(m.path("role"),
              fmt::format("{} must be one of system, developer, user, assistant, tool", m.path("role")));
  }
  const Json* content = m.find("content");
  const Json* calls = role == "assistant" ? m.array("tool_calls") : nullptr;
  if (content == nullptr && role != "assistant") m.wrong("content", "a string or an array of parts");
  Json out = {{"role", role},
              {"content", content == nullptr ? "" : text_content(*content, m.path("content"), {"text", "refusal"})}};
  const Json* older = role == "assistant" ? m.object("function_call") : nullptr;
  if (older != nullptr && calls == nullptr) {
    out["tool_calls"] = openai_calls(Json::array({{{"function", *older}}}), m.path("function_call"));
  }
  if (role == "assistant") {
    if (const std::string* thoughts = m.text("reasoning_content")) out["reasoning_content"] = *thoughts;
    if (calls != nullptr && !calls->empty()) out["tool_calls"] = openai_calls(*calls, m.path("tool_calls"));
  }
  if (const std::string* id = m.text("tool_call_id")) out["tool_call_id"] = *id;
  if (const std::string* name = m.text("name")) out["name"] = *name;
  return out;
}

void read_openai_tools(const Fields& body, ChatRequest& chat) {
  if (const Json* tools = body.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], element(body.path("tools"), i));
      if (tool.need_text("type") != "function") {
        bad_field(tool.path("type"), fmt::format("{} must be 'function'", tool.path("type")));
      }
      const Json* function = tool.object("function");
      if (function == nullptr) tool.wrong("function", "an object");
      const Fields f(*function, tool.path("function"));
      chat.tools.push_back(function_tool(f.need_text("name"), f.text("description"), f.object("parameters")));
    }
  }
  read_tool_choice(body, chat);
}

}  // namespace

namespace {

/// The name of a function, in "function" or beside it.
std::string tool_name(const Fields& object) {
  const Json* function = object.object("function");
  return function == nullptr ? object.need_text("name") : Fields(*function, object.path("function")).need_text("name");
}

void read_allowed_tools(const Fields& choice, ChatRequest& chat) {
  const Json* nested = choice.object("allowed_tools");
  const Fields f = nested == nullptr ? choice : Fields(*nested, choice.path("allowed_tools"));
  const auto mode = f.choice("mode", {"auto", "required"});
  if (!mode) f.wrong("mode", "'auto' or 'required'");
  if (*mode == "required") chat.choice = ToolChoice::required;
  const Json* names = f.array("tools");
  if (names == nullptr) f.wrong("tools", "an array of tools");
  if (names->empty())
    bad_field(f.path("tools"), fmt::format("{} is empty; it must name at least one tool", f.path("tools")));
  for (size_t i = 0; i < names->size(); ++i) {
    chat.allowed_tools.push_back(tool_name(Fields((*names)[i], element(f.path("tools"), i))));
  }
}

/// `functions` and `function_call`, which `tools` and `tool_choice` have replaced.
void read_functions(const Fields& body, ChatRequest& chat) {
  for (const char* name : {"functions", "function_call"}) {
    if (body.has(name) && (body.has("tools") || body.has("tool_choice"))) {
      bad_field(name,
                fmt::format("{} is the older name of what tools and tool_choice say; give only one of them", name));
    }
  }
  if (const Json* functions = body.array("functions")) {
    for (size_t i = 0; i < functions->size(); ++i) {
      const Fields f((*functions)[i], element("functions", i));
      chat.tools.push_back(function_tool(f.need_text("name"), f.text("description"), f.object("parameters")));
    }
  }
  const Json* choice = body.find("function_call");
  if (choice == nullptr && !body.has("functions")) return;
  chat.legacy_functions = true;
  chat.parallel_tools = false;
  if (choice == nullptr) return;
  if (choice->is_string()) {
    if (*body.choice("function_call", {"auto", "none"}) == "none") chat.choice = ToolChoice::none;
    return;
  }
  chat.allowed_tools = {Fields(*body.object("function_call"), "function_call").need_text("name")};
  chat.choice = ToolChoice::required;
  const bool known = std::any_of(chat.tools.begin(), chat.tools.end(),
                                 [&](const Json& tool) { return tool["function"]["name"] == chat.allowed_tools[0]; });
  if (!known) {
    bad_field("function_call.name",
              fmt::format("function_call names '{}', which is not among functions", chat.allowed_tools[0]));
  }
}

}  // namespace

void read_tool_choice(const Fields& body, ChatRequest& chat) {
  if (const Json* choice = body.find("tool_choice")) {
    if (choice->is_string()) {
      const auto word = body.choice("tool_choice", {"auto", "none", "required"});
      chat.choice = *word == "none"       ? ToolChoice::none
                    : *word == "required" ? ToolChoice::required
                                          : ToolChoice::automatic;
    } else {
      const Json* object = body.object("tool_choice");
      const Fields f(*object, "tool_choice");
      const std::string* type = f.text("type");
      if (type != nullptr && *type == "allowed_tools") {
        read_allowed_tools(f, chat);
      } else {
        chat.allowed_tools = {tool_name(f)};
        chat.choice = ToolChoice::required;
      }
    }
  }
  if (chat.tools.empty() && (chat.choice == ToolChoice::required || !chat.allowed_tools.empty())) {
    bad_field("tool_choice", "tool_choice wants a tool called, and there are no tools");
  }
  chat.parallel_tools = body.boolean("parallel_tool_calls").value_or(true);
}

ChatRequest read_openai_chat(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model) {
  ChatRequest chat;
  begin_reasoning(chat, defaults);
  chat.params = read_generation(body, defaults, model);
  const Json& messages = need_messages(body);
  for (size_t i = 0; i < messages.size(); ++i) {
    chat.messages.push_back(openai_message(messages[i], element("messages", i)));
  }
  read_openai_tools(body, chat);
  read_functions(body, chat);
  if (const auto open = body.boolean("add_generation_prompt")) chat.template_variables["add_generation_prompt"] = *open;
  read_reasoning(body, chat);
  end_reasoning(chat);
  if (const auto wanted = body.boolean("logprobs"); wanted && *wanted) {
    chat.params.n_probs = static_cast<int>(body.integer("top_logprobs", 0, kMostProbs).value_or(0));
  } else if (body.integer("top_logprobs", 0, kMostProbs).value_or(0) > 0) {
    bad_field("top_logprobs", "top_logprobs needs logprobs to be true");
  }
  return chat;
}

}  // namespace moetier::server
