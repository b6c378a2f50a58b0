// Calls whose arguments are JSON: Hermes and its kin, DeepSeek, Kimi, Llama, Granite, Mistral.
#include <algorithm>

#include "engine/structured/call_text.h"

namespace moetier {
namespace {

/// One object, or a list of them.
Read read_objects(CallCursor& c, std::vector<FoundCall>& calls) {
  std::string_view json;
  if (const Read r = c.json(json); r != Read::good) return r;
  if (!json.starts_with('[')) return add_call_object(json, c.at(), calls);
  const auto list = parse_scanned(json);
  if (!list.is_array() || list.empty()) return Read::bad;
  std::vector<FoundCall> found;
  for (const auto& object : list) {
    const std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    if (const Read r = add_call_object(text, c.at(), found); r != Read::good) return r;
  }
  // One text for all: it belongs to the last.
  const size_t begin = calls.empty() ? 0 : calls.back().end;
  for (size_t i = 0; i + 1 < found.size(); ++i) found[i].end = begin;
  calls.insert(calls.end(), found.begin(), found.end());
  return Read::good;
}

}  // namespace

Read read_hermes(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  // The tag that is there; a longer one before one that it begins with.
  for (const char* tag : {"tool_calls>", "tool_call>", "TOOLCALL>"}) {
    CallCursor here = c;
    const std::string open = std::string("<") + tag, close = std::string("</") + tag;
    const Read opened = here.literal(open);
    if (opened == Read::bad) continue;
    if (opened == Read::more) return opened;
    for (;;) {
      if (const Read r = section_end(here, close, calls); r != Read::bad) {
        c = here;
        return r;
      }
      const Read r = read_objects(here, calls);
      if (r == Read::bad) calls.clear();  // nothing in the section counts unless it is closed
      if (r != Read::good) return r;
    }
  }
  return Read::bad;
}

Read read_deepseek(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<｜tool▁calls▁begin｜>"); r != Read::good) return r;
  for (;;) {
    if (const Read r = section_end(c, "<｜tool▁calls▁end｜>", calls); r != Read::bad) return r;
    if (const Read r = c.literal("<｜tool▁call▁begin｜>"); r != Read::good) return r;
    std::string_view name;
    std::string_view json;
    if (const Read r = c.name(name); r != Read::good) return r;
    if (const Read r = c.literal("<｜tool▁sep｜>"); r != Read::good) return r;
    c.skip_space();
    if (c.rest().empty()) return Read::more;
    const bool fenced = !c.rest().starts_with('{');
    if (fenced) {  // V3 and R1: the kind comes first, then the name, and the arguments in a fence
      if (const Read r = c.name(name); r != Read::good) return r;
      c.skip_space();
      if (const Read r = c.literal("```json"); r != Read::good) return r;
    }
    if (const Read r = c.json(json); r != Read::good) return r;
    c.skip_space();
    if (fenced) {
      if (const Read r = c.closing("```"); r != Read::good) return r;
      c.skip_space();
    }
    if (const Read r = c.closing("<｜tool▁call▁end｜>"); r != Read::good) return r;
    if (const Read r = add_json_call(name, json, c.at(), calls); r != Read::good) return r;
  }
}

std::string kimi_tool_name(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  return std::string(id.substr(0, std::min(id.rfind(':'), id.size())));
}

Read read_kimi(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<|tool_calls_section_begin|>"); r != Read::good) return r;
  for (;;) {
    if (const Read r = section_end(c, "<|tool_calls_section_end|>", calls); r != Read::bad) return r;
    if (const Read r = c.literal("<|tool_call_begin|>"); r != Read::good) return r;
    c.skip_space();
    std::string_view id;
    std::string_view json;
    if (const Read r = c.name(id); r != Read::good) return r;
    c.skip_space();
    if (const Read r = c.literal("<|tool_call_argument_begin|>"); r != Read::good) return r;
    if (const Read r = c.json(json); r != Read::good) return r;
    c.skip_space();
    if (const Read r = c.closing("<|tool_call_end|>"); r != Read::good) return r;
    if (const Read r = add_json_call(kimi_tool_name(id), json, c.at(), calls); r != Read::good) return r;
    calls.back().call.id = std::string(id);
  }
}

Read read_llama(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  if (c.rest().starts_with('<')) {
    if (const Read r = c.literal("<|python_tag|>"); r != Read::good) return r;
  }
  std::string_view json;
  if (const Read r = c.json(json); r != Read::good) return r;
  if (!json.starts_with('{')) return Read::bad;
  if (const Read r = add_call_object(json, c.at(), calls); r != Read::good) return r;
  // An answer in JSON may look like a call: only the tools that there are make it one.
  if (types.empty() || types.knows(calls.back().call.name)) return Read::good;
  calls.pop_back();
  return Read::bad;
}

Read read_granite(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<|tool_call|>"); r != Read::good) return r;
  return read_objects(c, calls);
}

Read read_mistral(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("[TOOL_CALLS]"); r != Read::good) return r;
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  if (c.rest().starts_with('[') || c.rest().starts_with('{')) return read_objects(c, calls);
  std::string_view name;
  std::string_view id;
  if (const Read r = c.name(name); r != Read::good) return r;
  if (c.rest().starts_with("[C") || c.rest() == "[") {
    if (const Read r = c.literal("[CALL_ID]"); r != Read::good) return r;
    if (const Read r = c.name(id); r != Read::good) return r;
  }
  if (!c.rest().starts_with('{')) {
    if (const Read r = c.literal("[ARGS]"); r != Read::good) return r;
  }
  std::string_view json;
  if (const Read r = c.json(json); r != Read::good) return r;
  if (const Read r = add_json_call(name, json, c.at(), calls); r != Read::good) return r;
  calls.back().call.id = std::string(id);
  return Read::good;
}

}  // namespace moetier
