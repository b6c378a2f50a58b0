// Conversations as OpenAI's chat, OpenAI's responses and Anthropic's messages write them, to ChatRequest's form.
#pragma once

#include "server/api/chat_request.h"

namespace moetier::server {

/// /v1/chat/completions: messages, tools, tool_choice, reasoning and template fields. Errors: 400.
ChatRequest read_openai_chat(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model);

/// /v1/responses: instructions, input, tools, text.format, reasoning. Errors: 400.
ChatRequest read_responses(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model);

/// /v1/messages: system, messages with blocks, tools, tool_choice, thinking. Errors: 400.
ChatRequest read_anthropic(const Fields& body, const GenerationDefaults& defaults, const ServedModel& model);

// Shared by them.

/// A text, or an array of parts that are texts, as one text; `kinds` are the parts' types that hold one.
std::string text_content(const Json& content, const std::string& path, std::initializer_list<std::string_view> kinds);
/// A call's arguments: the JSON text as an object, or as it is if it is none.
Json arguments_object(const std::string& text);
/// The field `messages`, an array that is not empty.
const Json& need_messages(const Fields& body);
/// {"type": "function", "function": {...}}.
Json function_tool(const std::string& name, const std::string* description, const Json* parameters);
/// tool_choice (a word, the tool's name in an object, in "function" or beside it, or allowed_tools with a mode and
/// several names, in an object of that name or beside it) and parallel_tool_calls, once chat.tools is read.
void read_tool_choice(const Fields& body, ChatRequest& chat);

}  // namespace moetier::server
