// A conversation to go on with, whichever API it came by, and what must be generated for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/generation_params.h"

namespace moetier::server {

enum class ToolChoice { automatic, none, required };

struct ChatRequest {
  /// As chat templates take them: {"role", "content": text, "reasoning_content", "tool_calls": [{"id", "type",
  /// "function": {"name", "arguments": object}}], "tool_call_id", "name"}.
  Json messages = Json::array();
  Json tools = Json::array();  ///< [{"type": "function", "function": {"name", "description", "parameters"}}]
  ToolChoice choice = ToolChoice::automatic;
  std::vector<std::string> allowed_tools;  ///< the only ones that may be called; empty = all
  bool legacy_functions = false;           ///< asked by `functions`: answered by `function_call`
  bool parallel_tools = true;
  Json template_variables = Json::object();  ///< enable_thinking, reasoning_effort, ... and in the end all others
  Json given_variables = Json::object();     ///< chat_template_kwargs, which count before what follows from fields
  int64_t reasoning_budget = -1;             ///< tokens of thoughts at most; 0 = none, -1 = no limit
  bool split_reasoning = true;               ///< false: reasoning stays in the content
  GenerationParams params;
};

/// A conversation as the model will see it.
struct PreparedChat {
  std::string prompt;
  std::vector<TokenId> tokens;
  ChatFormat format = ChatFormat::plain;
  bool control_text = false;  ///< Request::special
  ChatOutputOptions output;
  ThoughtOptions thoughts;
  /// The grammar that the answer must match, if any.
  std::string gbnf;
  std::vector<std::string> triggers;
};

/// Renders, tokenizes, and decides on the grammar. Errors: 400.
PreparedChat prepare_chat(const ChatRequest& chat, const ServedModel& model);

/// Just the prompt's text, for /apply-template.
std::string render_chat(const ChatRequest& chat, const ServedModel& model);

}  // namespace moetier::server
