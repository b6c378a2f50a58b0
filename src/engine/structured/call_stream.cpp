#include "engine/structured/call_stream.h"

#include <string>

namespace moetier {
namespace {

/// A text behind white space.
Read spaced(CallCursor& c, std::string_view wanted) {
  c.skip_space();
  return c.literal(wanted);
}

/// The arguments' own beginning.
Read at_object(CallCursor& c) {
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  return c.rest().starts_with('{') ? Read::good : Read::bad;
}

/// {"name": NAME, "arguments": or "parameters": up to the value.
Read object_head(CallCursor& c, ToolCall& call) {
  for (const char* part : {"{", "\"name\"", ":"}) {
    if (const Read r = spaced(c, part); r != Read::good) return r;
  }
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  if (!c.rest().starts_with('"')) return Read::bad;
  std::string_view name;
  if (const Read r = c.json(name); r != Read::good) return r;
  const nlohmann::ordered_json parsed = parse_scanned(name);
  if (!parsed.is_string() || parsed.get_ref<const std::string&>().empty()) return Read::bad;
  call.name = parsed.get<std::string>();
  if (const Read r = spaced(c, ","); r != Read::good) return r;
  c.skip_space();
  CallCursor other = c;
  Read r = c.literal("\"arguments\"");
  if (r == Read::bad) {
    c = other;
    r = c.literal("\"parameters\"");
  }
  if (r != Read::good) return r;
  if (const Read colon = spaced(c, ":"); colon != Read::good) return colon;
  return at_object(c);
}

/// The end of an object behind one of its values.
Read object_rest(CallCursor& c) {
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  if (c.rest().starts_with('}')) return c.literal("}");
  if (!c.rest().starts_with(',')) return Read::bad;
  const std::string begun = R"({"":0)";
  const std::string text = begun + std::string(c.rest());
  CallCursor whole(text, c.final());
  std::string_view object;
  const Read r = whole.json(object);
  if (r == Read::good) c.move(whole.at() - begun.size());
  return r;
}

Read nothing(CallCursor&) {
  return Read::good;
}

Read hermes_head(CallCursor& c, bool first, const ToolTypes&, ToolCall& call) {
  if (first) {
    if (const Read r = c.literal("<tool_call>"); r != Read::good) return r;
  }
  return object_head(c, call);
}
Read hermes_next(CallCursor& c) {
  c.skip_space();
  return c.closing("</tool_call>");
}

Read llama_head(CallCursor& c, bool first, const ToolTypes& types, ToolCall& call) {
  if (!first) {
    if (const Read r = spaced(c, ";"); r != Read::good) return r;
  } else if (c.rest().starts_with('<')) {
    if (const Read r = c.literal("<|python_tag|>"); r != Read::good) return r;
  }
  if (const Read r = object_head(c, call); r != Read::good) return r;
  // An answer in JSON may look like a call: only the tools that there are make it one.
  return types.empty() || types.knows(call.name) ? Read::good : Read::bad;
}
Read llama_next(CallCursor& c) {
  CallCursor ahead = c;
  ahead.skip_space();
  if (ahead.rest().empty()) return Read::more;
  return ahead.rest().starts_with(';') ? Read::bad : Read::good;
}

Read granite_head(CallCursor& c, bool first, const ToolTypes&, ToolCall& call) {
  if (!first) {
    if (const Read r = spaced(c, ","); r != Read::good) return r;
    return object_head(c, call);
  }
  if (const Read r = c.literal("<|tool_call|>"); r != Read::good) return r;
  if (const Read r = spaced(c, "["); r != Read::good) return r;
  return object_head(c, call);
}
Read granite_next(CallCursor& c) {
  c.skip_space();
  return c.closing("]");
}

Read mistral_head(CallCursor& c, bool, const ToolTypes&, ToolCall& call) {
  if (const Read r = c.literal("[TOOL_CALLS]"); r != Read::good) return r;
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  std::string_view name, id;
  if (const Read r = c.name(name); r != Read::good) return r;
  if (c.rest().starts_with("[C") || c.rest() == "[") {
    if (const Read r = c.literal("[CALL_ID]"); r != Read::good) return r;
    if (const Read r = c.name(id); r != Read::good) return r;
  }
  if (!c.rest().starts_with('{')) {
    if (const Read r = c.literal("[ARGS]"); r != Read::good) return r;
  }
  call.name = std::string(name);
  call.id = std::string(id);
  return at_object(c);
}

Read deepseek_head(CallCursor& c, bool first, const ToolTypes&, ToolCall& call) {
  if (first) {
    if (const Read r = c.literal("<｜tool▁calls▁begin｜>"); r != Read::good) return r;
  }
  if (const Read r = spaced(c, "<｜tool▁call▁begin｜>"); r != Read::good) return r;
  std::string_view name;
  if (const Read r = c.name(name); r != Read::good) return r;
  if (const Read r = c.literal("<｜tool▁sep｜>"); r != Read::good) return r;
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  if (!c.rest().starts_with('{')) {  // V3 and R1: what came was the kind
    if (const Read r = c.name(name); r != Read::good) return r;
    if (const Read r = spaced(c, "```json"); r != Read::good) return r;
  }
  call.name = std::string(name);
  return at_object(c);
}
Read deepseek_tail(CallCursor& c) {
  c.skip_space();
  if (c.rest().starts_with('`')) {
    if (const Read r = c.closing("```"); r != Read::good) return r;
    c.skip_space();
  }
  return c.closing("<｜tool▁call▁end｜>");
}
Read deepseek_next(CallCursor& c) {
  c.skip_space();
  return c.closing("<｜tool▁calls▁end｜>");
}

Read kimi_head(CallCursor& c, bool first, const ToolTypes&, ToolCall& call) {
  if (first) {
    if (const Read r = c.literal("<|tool_calls_section_begin|>"); r != Read::good) return r;
  }
  if (const Read r = spaced(c, "<|tool_call_begin|>"); r != Read::good) return r;
  c.skip_space();
  std::string_view id;
  if (const Read r = c.name(id); r != Read::good) return r;
  if (const Read r = spaced(c, "<|tool_call_argument_begin|>"); r != Read::good) return r;
  call.id = std::string(id);
  call.name = kimi_tool_name(id);
  if (call.name.empty()) return Read::bad;
  return at_object(c);
}
Read kimi_tail(CallCursor& c) {
  c.skip_space();
  return c.closing("<|tool_call_end|>");
}
Read kimi_next(CallCursor& c) {
  c.skip_space();
  return c.closing("<|tool_calls_section_end|>");
}

}  // namespace

const CallStreamer* call_streamer(ChatFormat format) {
  static const CallStreamer hermes{hermes_head, object_rest, hermes_next};
  static const CallStreamer llama{llama_head, object_rest, llama_next};
  static const CallStreamer granite{granite_head, object_rest, granite_next};
  static const CallStreamer mistral{mistral_head, nothing, nothing};
  static const CallStreamer deepseek{deepseek_head, deepseek_tail, deepseek_next};
  static const CallStreamer kimi{kimi_head, kimi_tail, kimi_next};
  switch (format) {
    case ChatFormat::hermes:
      return &hermes;
    case ChatFormat::llama_json:
      return &llama;
    case ChatFormat::granite:
      return &granite;
    case ChatFormat::mistral:
      return &mistral;
    case ChatFormat::deepseek:
      return &deepseek;
    case ChatFormat::kimi:
      return &kimi;
    default:
      return nullptr;
  }
}

size_t ObjectScan::take(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      begun_ = true;
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (--depth_ == 0) return i + 1;
    }
  }
  return text.size();
}

bool is_json_object(std::string_view text) {
  CallCursor c(text, true);
  std::string_view object;
  return c.json(object) == Read::good && c.rest().empty() && parse_scanned(object).is_object();
}

}  // namespace moetier
