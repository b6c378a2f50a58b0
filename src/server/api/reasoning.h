// How much a chat's answer may think, from the ways in which the APIs say it.
#pragma once

#include <string>

#include "server/api/chat_request.h"

namespace moetier::server {

/// What the server's own flags say; the first thing done to a chat.
void begin_reasoning(ChatRequest& chat, const GenerationDefaults& defaults);

/// The fields that are alike in all chat APIs: chat_template_kwargs, reasoning_effort, reasoning_format, and a budget
/// of tokens (reasoning_budget, thinking_budget_tokens). Errors: 400.
void read_reasoning(const Fields& body, ChatRequest& chat);

/// The effort for templates that know it; "none" switches thinking off.
void set_effort(ChatRequest& chat, const std::string& effort);

/// OpenAI's: any other word switches thinking on, too.
void ask_effort(ChatRequest& chat, const std::string& effort);

/// Switches thinking on or off, as far as the template lets itself be told. Off also ends thoughts that come anyway.
void set_thinking(ChatRequest& chat, bool on);

/// The last thing done to a chat: what follows from the budget, and variables that the caller gave by name.
void end_reasoning(ChatRequest& chat);

}  // namespace moetier::server
