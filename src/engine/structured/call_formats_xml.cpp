// Calls whose arguments are written one by one between tags: Qwen3-Coder, GLM, MiniMax M2, DeepSeek's DSML.
#include "engine/structured/call_text.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

void add_call(std::string_view name, const Json& arguments, size_t end, std::vector<FoundCall>& calls) {
  calls.push_back({{std::string(name), arguments.dump(-1, ' ', false, Json::error_handler_t::replace), ""}, end});
}

/// Whether this stands next.
Read is_next(CallCursor c, std::string_view wanted) {
  return c.literal(wanted);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

/// Without the line breaks that set the value off from its tags.
std::string_view unwrapped(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// <function=NAME> (<parameter=KEY> VALUE </parameter>)* </function>
Read read_function(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls, bool last) {
  if (const Read r = c.literal("<function="); r != Read::good) return r;
  std::string_view name;
  if (const Read r = c.name(name); r != Read::good) return r;
  if (const Read r = c.literal(">"); r != Read::good) return r;
  Json arguments = Json::object();
  for (;;) {
    c.skip_space();
    const Read more = is_next(c, "<parameter=");
    if (more == Read::more && !(c.final() && c.rest().empty())) return more;
    if (more != Read::good) break;
    c.literal("<parameter=");
    std::string_view key;
    std::string_view value;
    if (const Read r = c.until(">", key); r != Read::good) return r;
    if (key.empty() || key.find_first_of("\n<") != std::string_view::npos) return Read::bad;
    if (const Read r = c.until("</parameter>", value); r != Read::good) return r;
    arguments[std::string(trimmed(key))] = types.value(name, std::string(trimmed(key)), unwrapped(value));
  }
  if (const Read r = last ? c.closing("</function>") : c.literal("</function>"); r != Read::good) return r;
  add_call(name, arguments, c.at(), calls);
  return Read::good;
}

/// <invoke name="NAME"> (<parameter name="KEY"ATTRIBUTES> VALUE </parameter>)* </invoke>, tags behind `mark`.
Read read_invoke(CallCursor& c, const ToolTypes& types, const std::string& mark, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<" + mark + "invoke name=\""); r != Read::good) return r;
  std::string_view name;
  if (const Read r = c.name(name); r != Read::good) return r;
  if (const Read r = c.literal("\">"); r != Read::good) return r;
  const std::string open = "<" + mark + "parameter name=\"", close = "</" + mark + "parameter>",
                    end = "</" + mark + "invoke>";
  Json arguments = Json::object();
  for (;;) {
    c.skip_space();
    const Read more = is_next(c, open);
    if (more == Read::more) return more;
    if (more == Read::bad) break;
    c.literal(open);
    std::string_view key;
    std::string_view attributes;
    std::string_view value;
    if (const Read r = c.until("\"", key); r != Read::good) return r;
    if (const Read r = c.until(">", attributes); r != Read::good) return r;
    if (key.empty() || key.find_first_of("\n<>") != std::string_view::npos) return Read::bad;
    if (const Read r = c.until(close, value); r != Read::good) return r;
    const std::string name_of_key(key);
    if (trimmed(attributes) == "string=\"true\"") {
      arguments[name_of_key] = std::string(value);
    } else {
      arguments[name_of_key] = types.value(name, name_of_key, value);
    }
  }
  if (const Read r = c.literal(end); r != Read::good) return r;
  add_call(name, arguments, c.at(), calls);
  return Read::good;
}

Read read_invokes(CallCursor& c, const ToolTypes& types, const std::string& mark, std::string_view close,
                  std::vector<FoundCall>& calls) {
  for (;;) {
    if (const Read r = section_end(c, close, calls); r != Read::bad) return r;
    if (const Read r = read_invoke(c, types, mark, calls); r != Read::good) return r;
  }
}

}  // namespace

Read read_qwen_xml(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  // Some models leave the outer tag out.
  if (c.rest().starts_with("<f")) return read_function(c, types, calls, true);
  const std::string tag = c.rest().starts_with("<s") ? "seed:tool_call>" : "tool_call>";
  if (const Read r = c.literal("<" + tag); r != Read::good) return r;
  for (;;) {
    if (const Read r = section_end(c, "</" + tag, calls); r != Read::bad) return r;
    if (const Read r = read_function(c, types, calls, true); r != Read::good) return r;
  }
}

Read read_glm(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<tool_call>"); r != Read::good) return r;
  c.skip_space();
  std::string_view name;
  if (const Read r = c.name(name); r != Read::good) return r;
  Json arguments = Json::object();
  for (;;) {
    c.skip_space();
    const Read more = is_next(c, "<arg_key>");
    if (more == Read::more && !(c.final() && c.rest().empty())) return more;
    if (more != Read::good) break;
    c.literal("<arg_key>");
    std::string_view key;
    std::string_view value;
    if (const Read r = c.until("</arg_key>", key); r != Read::good) return r;
    c.skip_space();
    if (const Read r = c.literal("<arg_value>"); r != Read::good) return r;
    if (const Read r = c.until("</arg_value>", value); r != Read::good) return r;
    const std::string parameter(trimmed(key));
    if (parameter.empty() || parameter.find('<') != std::string::npos) return Read::bad;
    arguments[parameter] = types.value(name, parameter, value);
  }
  if (const Read r = c.closing("</tool_call>"); r != Read::good) return r;
  add_call(name, arguments, c.at(), calls);
  return Read::good;
}

Read read_minimax(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<minimax:tool_call>"); r != Read::good) return r;
  return read_invokes(c, types, "", "</minimax:tool_call>", calls);
}

Read read_dsml(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  const std::string mark = "｜DSML｜";
  for (const char* tag : {"function_calls>", "tool_calls>"}) {
    CallCursor here = c;
    const Read opened = here.literal("<" + mark + tag);
    if (opened == Read::more) return opened;
    if (opened == Read::bad) continue;
    const Read r = read_invokes(here, types, mark, "</" + mark + tag, calls);
    c = here;
    return r;
  }
  return Read::bad;
}

}  // namespace moetier
