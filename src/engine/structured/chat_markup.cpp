// Which markup belongs to which format, and how a template gives its format away.
#include <array>

#include "engine/structured/call_text.h"

namespace moetier {
namespace {

struct Row {
  ChatFormat format;
  std::string_view name;
  bool control_text;  ///< control tokens carry the markup
};

constexpr std::array kRows = {
    Row{ChatFormat::plain, "plain", false},       Row{ChatFormat::hermes, "hermes", false},
    Row{ChatFormat::qwen_xml, "qwen-xml", false}, Row{ChatFormat::harmony, "harmony", true},
    Row{ChatFormat::deepseek, "deepseek", true},  Row{ChatFormat::deepseek_dsml, "deepseek-dsml", true},
    Row{ChatFormat::glm, "glm", false},           Row{ChatFormat::gemma4, "gemma4", true},
    Row{ChatFormat::lfm2, "lfm2", true},          Row{ChatFormat::minimax, "minimax", false},
    Row{ChatFormat::kimi, "kimi", true},          Row{ChatFormat::llama_json, "llama-json", true},
    Row{ChatFormat::llama4, "llama4", true},      Row{ChatFormat::granite, "granite", true},
    Row{ChatFormat::mistral, "mistral", true},
};

const Row& row(ChatFormat format) {
  for (const Row& r : kRows) {
    if (r.format == format) return r;
  }
  return kRows[0];
}

}  // namespace

std::string_view to_string(ChatFormat format) {
  return row(format).name;
}

bool chat_format_needs_control_text(ChatFormat format) {
  return row(format).control_text;
}

ChatFormat detect_chat_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  // From what only one format has to what several have.
  if (has("<|channel|>")) return ChatFormat::harmony;
  if (has("<|channel>") || has("<|tool_call>call:")) return ChatFormat::gemma4;
  if (has("｜DSML｜")) return ChatFormat::deepseek_dsml;
  if (has("<｜tool▁calls▁begin｜>")) return ChatFormat::deepseek;
  if (has("<|tool_calls_section_begin|>")) return ChatFormat::kimi;
  if (has("<minimax:tool_call>")) return ChatFormat::minimax;
  if (has("<arg_key>")) return ChatFormat::glm;
  if (has("<function=") && (has("<tool_call>") || has("<seed:tool_call>"))) return ChatFormat::qwen_xml;
  if (has("<|tool_call_start|>") || has("<|tool_list_start|>") || (has("List of tools: [") && has("<|im_start|>")))
    return ChatFormat::lfm2;
  if (has("[TOOL_CALLS]")) return ChatFormat::mistral;
  if (has("<|tool_call|>")) return ChatFormat::granite;
  if (has("<tool_call>") || has("<tool_calls>") || has("<TOOLCALL>")) return ChatFormat::hermes;
  if (has("<|python_start|>") || has("<|header_start|>")) return ChatFormat::llama4;
  if (has("<|python_tag|>")) return ChatFormat::llama_json;
  if (has("<think>")) return ChatFormat::hermes;
  return ChatFormat::plain;
}

ChatMarkup chat_markup(ChatFormat format) {
  ChatMarkup m;
  m.reasoning = {{"<think>", "</think>"}};
  m.endings = ">";
  switch (format) {
    case ChatFormat::plain:
    case ChatFormat::harmony:
      return {};
    case ChatFormat::hermes:
      m.openers = {"<tool_call>", "<tool_calls>", "<TOOLCALL>"};
      m.read = read_hermes;
      break;
    case ChatFormat::qwen_xml:
      m.reasoning.push_back({"<seed:think>", "</seed:think>"});
      m.openers = {"<tool_call>", "<seed:tool_call>", "<function="};
      m.read = read_qwen_xml;
      break;
    case ChatFormat::deepseek:
      m.openers = {"<｜tool▁calls▁begin｜>"};
      m.read = read_deepseek;
      break;
    case ChatFormat::deepseek_dsml:
      m.openers = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"};
      m.read = read_dsml;
      break;
    case ChatFormat::glm:
      m.openers = {"<tool_call>"};
      m.read = read_glm;
      break;
    case ChatFormat::gemma4:
      m.reasoning = {{"<|channel>thought", "<channel|>"}};
      m.openers = {"<|tool_call>"};
      m.read = read_gemma;
      break;
    case ChatFormat::lfm2:
      m.openers = {"<|tool_call_start|>"};
      m.read = read_lfm2;
      break;
    case ChatFormat::minimax:
      m.openers = {"<minimax:tool_call>"};
      m.read = read_minimax;
      break;
    case ChatFormat::kimi:
      m.openers = {"<|tool_calls_section_begin|>"};
      m.read = read_kimi;
      break;
    case ChatFormat::llama_json:
      m.openers = {"<|python_tag|>", "{"};
      m.read = read_llama;
      m.only_first = true;
      m.endings = "}";
      break;
    case ChatFormat::llama4:
      m.openers = {"<|python_start|>", "[", "{"};
      m.read = read_llama4;
      m.only_first = true;
      m.endings = ">]}";
      break;
    case ChatFormat::granite:
      m.openers = {"<|tool_call|>"};
      m.read = read_granite;
      m.endings = "]}";
      break;
    case ChatFormat::mistral:
      m.reasoning = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}};
      m.openers = {"[TOOL_CALLS]"};
      m.read = read_mistral;
      m.endings = "]}";
      break;
  }
  return m;
}

ThoughtMarks thought_marks(ChatFormat format) {
  const std::vector<ChatMarkup::Pair> marks = chat_markup(format).reasoning;
  return marks.empty() ? ThoughtMarks{} : ThoughtMarks{marks.front().open, marks.front().close};
}

bool prompt_opens_reasoning(ChatFormat format, std::string_view prompt) {
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' ')) prompt.remove_suffix(1);
  for (const ChatMarkup::Pair& pair : chat_markup(format).reasoning) {
    if (prompt.ends_with(pair.open)) return true;
  }
  return false;
}

}  // namespace moetier
