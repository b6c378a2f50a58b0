// Grammars of tool calls, format by format.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/chat_output.h"
#include "engine/structured/call_text.h"
#include "engine/structured/gbnf_text.h"
#include "engine/structured/schema_grammar.h"
#include "engine/structured/schema_notation.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;
using gbnf::literal;

constexpr int kMostSenseless = 8;  // tools whose schemas as a whole make no sense

struct Tool {
  std::string name;
  Json parameters;  ///< a schema
  std::string prefix;
};

std::vector<Tool> read_tools(const Json& tools) {
  std::vector<Tool> out;
  if (!tools.is_array() || tools.empty()) usage_error("there are no tools to make a grammar of");
  for (const Json& entry : tools) {
    const Json& tool = entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string() || tool["name"] == "") {
      usage_error("tool {} has no name", out.size());
    }
    Json schema = Json::object();
    for (const char* word : {"parameters", "input_schema"}) {
      if (tool.contains(word) && !tool[word].is_null()) schema = tool[word];
    }
    // The arguments are an object, whatever else the schema says.
    if (schema.is_object()) schema["type"] = "object";
    out.push_back({tool["name"].get<std::string>(), schema, fmt::format("t{}-", out.size())});
  }
  return out;
}

/// A name that a format's calls cannot hold.
class ToolName : public Error {
 public:
  using Error::Error;
};

/// Collects rules.
class ToolGrammarWriter {
 public:
  explicit ToolGrammarWriter(const Json& tools) : tools_(read_tools(tools)) {}

  /// The rule of a call, with arguments as `arguments` writes them: a function of the tool that gives an expression.
  template <typename Arguments>
  std::string each(const Arguments& arguments) {
    std::vector<std::string> ways;
    for (const Tool& tool : tools_) {
      const std::string name = tool.prefix + "call";
      add(name, loosely(tool, arguments));
      ways.push_back(name);
    }
    return fmt::format("({})", fmt::join(ways, " | "));
  }

  /// What could not be kept: {tool, what}.
  const std::vector<LoosenedTool>& loosened() const { return loosened_; }

  /// The rule for arguments as a JSON object.
  std::string json_arguments(const Tool& tool) {
    SchemaGrammar grammar(tool.parameters, {.prefix = tool.prefix, .loosened = &notes_});
    const std::string rule = grammar.rule(tool.parameters, "#");
    text_ += grammar.text();
    return rule;
  }

  /// The same in another notation; Python's in round brackets.
  std::string notated_arguments(const Tool& tool, Notation notation) {
    SchemaGrammar grammar(tool.parameters,
                          {.compact = notation == Notation::gemma, .prefix = tool.prefix, .loosened = &notes_},
                          notation);
    const std::string out = notation == Notation::python ? grammar.call_arguments(tool.parameters, "#")
                                                         : grammar.rule(tool.parameters, "#");
    text_ += grammar.text();
    return out;
  }

  /// Arguments one by one, in the schema's order: for each `item(name, value)` gives the expression. Strings are free
  /// text that does not contain `close`, or one of the schema's values.
  template <typename Item>
  std::string single_arguments(const Tool& tool, std::string_view close, const Item& item) {
    const SchemaDocument document(tool.parameters);
    const Json flat = document.flat(tool.parameters, "#");
    SchemaGrammar grammar(tool.parameters, {.prefix = tool.prefix, .loosened = &notes_});
    std::string out;
    const Json properties = flat.is_object() && flat.contains("properties") ? flat["properties"] : Json::object();
    if (!properties.is_object()) usage_error("properties at # is not an object");
    // Parameters are written one by one, so what speaks of all of them is not kept.
    for (const char* word : {"anyOf", "oneOf", "not", "if", "const", "enum", "dependentRequired", "dependentSchemas",
                             "dependencies", "minProperties", "maxProperties"}) {
      if (flat.is_object() && flat.contains(word)) notes_.push_back(fmt::format("{} at #", word));
    }
    for (const auto& [name, schema] : properties.items()) {
      const std::string where = "#/properties/" + name;
      Json own = true;
      try {
        own = document.flat(schema, where);
      } catch (const Error&) {  // its rule says what it is about
      }
      if (own == false) continue;
      if (is_text(own)) note_unkept(own, where);
      const std::string value = is_text(own) ? text_value(own, close) : grammar.rule(schema, where);
      const bool required = flat.contains("required") && flat["required"].is_array() &&
                            std::find(flat["required"].begin(), flat["required"].end(), name) != flat["required"].end();
      out += fmt::format(" ({}){}", item(name, value, is_text(own)), required ? "" : "?");
    }
    text_ += grammar.text();
    return out.empty() ? "\"\"" : out.substr(1);
  }

  /// A rule for text in which `marker` does not occur.
  std::string without(std::string_view marker) {
    const auto known = without_.find(std::string(marker));
    if (known != without_.end()) return known->second;
    const auto rules = text_without(marker, fmt::format("without-{}-", without_.size()));
    for (const auto& [name, body] : rules) add(name, body);
    return without_[std::string(marker)] = rules.front().first;
  }

  void add(const std::string& name, const std::string& body) { text_ += fmt::format("{} ::= {}\n", name, body); }
  std::string text(const std::string& root) const {
    return fmt::format("root ::= {}\nws ::= [ \\n]{{0,3}}\n{}", root, text_);
  }

 private:
  static bool is_text(const Json& flat) {
    if (!flat.is_object()) return false;
    if (flat.contains("type")) return flat["type"] == "string";
    for (const char* word : {"enum", "const"}) {
      if (!flat.contains(word)) continue;
      const Json values = flat[word].is_array() ? flat[word] : Json::array({flat[word]});
      return std::all_of(values.begin(), values.end(), [](const Json& v) { return v.is_string(); });
    }
    return false;
  }

  /// The expression of a call's arguments; where a schema cannot be made sense of as a whole, its properties take any
  /// value.
  template <typename Arguments>
  std::string loosely(const Tool& tool, const Arguments& arguments) {
    notes_.clear();
    const std::string before = text_;
    std::string out;
    try {
      out = arguments(tool);
    } catch (const ToolName&) {
      throw;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::usage) throw;
      // Making sense of them has its price, and a request may have many.
      if (++senseless_ > kMostSenseless)
        usage_error("the parameters of the tool '{}' cannot be kept: {}", tool.name, e.what());
      text_ = before;
      notes_ = {fmt::format("all but the names of its parameters ({})", e.what())};
      out = arguments(Tool{tool.name, any_parameters(tool.parameters), tool.prefix});
    }
    for (std::string& note : notes_) loosened_.push_back({tool.name, std::move(note)});
    notes_.clear();
    return out;
  }

  static Json any_parameters(const Json& schema) {
    Json properties = Json::object();
    if (schema.is_object() && schema.contains("properties") && schema["properties"].is_object()) {
      for (const auto& [name, unused] : schema["properties"].items()) properties[name] = true;
    }
    return {{"type", "object"}, {"properties", properties}, {"additionalProperties", true}};
  }

  /// Strings that stand bare between tags are not held to these.
  void note_unkept(const Json& flat, const std::string& where) {
    for (const char* word : {"minLength", "maxLength", "pattern", "format", "not"}) {
      if (flat.contains(word)) notes_.push_back(fmt::format("{} at {}", word, where));
    }
  }

  std::string text_value(const Json& flat, std::string_view close) {
    std::vector<std::string> ways;
    Json values = Json::array();
    if (flat.contains("const")) values.push_back(flat["const"]);
    if (flat.contains("enum") && flat["enum"].is_array()) values = flat["enum"];
    for (const Json& v : values) {
      if (v.is_string() && v.get<std::string>().find(close) == std::string::npos)
        ways.push_back(literal(v.get<std::string>()));
    }
    return ways.empty() ? without(close) : fmt::format("({})", fmt::join(ways, " | "));
  }

  std::vector<Tool> tools_;
  std::vector<LoosenedTool> loosened_;
  std::vector<std::string> notes_;  // likewise, of the tool at hand
  int senseless_ = 0;
  std::string text_;
  std::map<std::string, std::string> without_;
};

/// What a format's calls look like.
struct CallShape {
  std::string begin;    ///< expression before the first call
  std::string call;     ///< one call
  std::string between;  ///< between two calls
  std::string end;      ///< behind the last one
  std::vector<std::string> triggers;
  std::string other_begin = {}, other_end = {};  ///< another spelling of both, if there is one
};

std::string key_of(const Tool& tool) {
  return literal(Json(tool.name).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string json_call(ToolGrammarWriter& w, const char* word) {
  return w.each([&](const Tool& t) {
    return fmt::format("\"{{\" ws \"\\\"name\\\":\" ws {} ws \",\" ws {} ws {} ws \"}}\"", key_of(t),
                       literal(fmt::format("\"{}\":", word)), w.json_arguments(t));
  });
}

/// The name of a tool, which must be one that call readers know the end of.
std::string plain_name(const Tool& tool) {
  const auto cannot = [](char c) {
    const auto u = static_cast<uint8_t>(c);
    return u <= 0x20 || u == 0x7F || std::string_view("<>{}[]()\"'`,;=|").find(c) != std::string_view::npos;
  };
  if (std::any_of(tool.name.begin(), tool.name.end(), cannot) || tool.name.size() > 256)
    throw ToolName(ErrorKind::usage,
                   fmt::format("this format of calls cannot write the name '{}'", tool.name.substr(0, 256)));
  return tool.name;
}

CallShape notated_shape(ChatFormat format, ToolGrammarWriter& w) {
  if (format == ChatFormat::gemma4) {
    const std::string call = w.each([&](const Tool& t) {
      return fmt::format("{} {}", literal("call:" + plain_name(t)), w.notated_arguments(t, Notation::gemma));
    });
    return {"\"<|tool_call>\"", call, "\"<tool_call|><|tool_call>\"", "\"<tool_call|>\"", {"<|tool_call>"}};
  }
  const std::string call = w.each([&](const Tool& t) {
    return fmt::format("{} {}", literal(plain_name(t)), w.notated_arguments(t, Notation::python));
  });
  if (format == ChatFormat::llama4)
    return {"\"<|python_start|>[\"", call, "\", \"", "\"]<|python_end|>\"", {"<|python_start|>"}};
  return {"\"<|tool_call_start|>[\"", call, "\", \"", "\"]<|tool_call_end|>\"", {"<|tool_call_start|>"}};
}

CallShape xml_shape(ChatFormat format, ToolGrammarWriter& w) {
  if (format == ChatFormat::qwen_xml) {
    const std::string call = w.each([&](const Tool& t) {
      return fmt::format(
          "{} {} \"</function>\"", literal("<function=" + t.name + ">\n"),
          w.single_arguments(t, "</parameter>", [](const std::string& name, const std::string& value, bool) {
            return fmt::format("{} {} \"\\n</parameter>\\n\"", literal("<parameter=" + name + ">\n"), value);
          }));
    });
    return {"\"<tool_call>\\n\"", call, "\"\\n</tool_call>\\n<tool_call>\\n\"", "\"\\n</tool_call>\"", {"<tool_call>"}};
  }
  if (format == ChatFormat::glm) {
    const std::string call = w.each([&](const Tool& t) {
      return fmt::format(
          "{} {}", literal(t.name + "\n"),
          w.single_arguments(t, "</arg_value>", [](const std::string& name, const std::string& value, bool) {
            return fmt::format("{} \"\\n\"? \"<arg_value>\" {} \"</arg_value>\\n\"",
                               literal("<arg_key>" + name + "</arg_key>"), value);
          }));
    });
    return {"\"<tool_call>\"", call, "\"</tool_call>\\n<tool_call>\"", "\"</tool_call>\"", {"<tool_call>"}};
  }
  const bool dsml = format == ChatFormat::deepseek_dsml;
  const std::string mark = dsml ? "｜DSML｜" : "";
  const std::string close = "</" + mark + "parameter>";
  const std::string call = w.each([&](const Tool& t) {
    return fmt::format(
        "{} {} {}", literal("<" + mark + "invoke name=\"" + t.name + "\">\n"),
        w.single_arguments(
            t, close,
            [&](const std::string& name, const std::string& value, bool text) {
              const std::string attribute = dsml ? (text ? " string=\"true\"" : " string=\"false\"") : "";
              return fmt::format("{} {} {}", literal("<" + mark + "parameter name=\"" + name + "\"" + attribute + ">"),
                                 value, literal(close + "\n"));
            }),
        literal("</" + mark + "invoke>\n"));
  });
  if (!dsml) return {"\"<minimax:tool_call>\\n\"", call, "\"\"", "\"</minimax:tool_call>\"", {"<minimax:tool_call>"}};
  // V3.2's name of the section, and V4's.
  return {literal("<" + mark + "function_calls>\n"),
          call,
          "\"\"",
          literal("</" + mark + "function_calls>"),
          {"<" + mark + "function_calls>", "<" + mark + "tool_calls>"},
          literal("<" + mark + "tool_calls>\n"),
          literal("</" + mark + "tool_calls>")};
}

CallShape json_shape(ChatFormat format, ToolGrammarWriter& w) {
  switch (format) {
    case ChatFormat::hermes:
      return {"\"<tool_call>\\n\"",
              json_call(w, "arguments"),
              "\"\\n</tool_call>\\n<tool_call>\\n\"",
              "\"\\n</tool_call>\"",
              {"<tool_call>"}};
    case ChatFormat::llama_json:
      return {"\"\"", json_call(w, "parameters"), "\"; \"", "\"\"", {"{\"name\":"}};
    case ChatFormat::granite:
      return {"\"<|tool_call|>[\"", json_call(w, "arguments"), "\", \"", "\"]\"", {"<|tool_call|>"}};
    case ChatFormat::mistral: {
      const std::string call =
          w.each([&](const Tool& t) { return fmt::format("{} {}", literal(t.name + "[ARGS]"), w.json_arguments(t)); });
      return {"\"[TOOL_CALLS]\"", call, "\"[TOOL_CALLS]\"", "\"\"", {"[TOOL_CALLS]"}};
    }
    case ChatFormat::deepseek: {
      // As V3.1 writes it, or as V3 and R1 do.
      const std::string call = w.each([&](const Tool& t) {
        const std::string arguments = w.json_arguments(t);
        return fmt::format("\"<｜tool▁call▁begin｜>\" ({} {} | {} {} \"\\n```\") \"<｜tool▁call▁end｜>\"",
                           literal(t.name + "<｜tool▁sep｜>"), arguments,
                           literal("function<｜tool▁sep｜>" + t.name + "\n```json\n"), arguments);
      });
      return {"\"<｜tool▁calls▁begin｜>\"", call, "\"\\n\"?", "\"<｜tool▁calls▁end｜>\"", {"<｜tool▁calls▁begin｜>"}};
    }
    case ChatFormat::kimi: {
      const std::string call = w.each([&](const Tool& t) {
        return fmt::format("{} [0-9]{{1,3}} \"<|tool_call_argument_begin|>\" {} \"<|tool_call_end|>\"",
                           literal("<|tool_call_begin|>functions." + t.name + ":"), w.json_arguments(t));
      });
      return {"\"<|tool_calls_section_begin|>\"",
              call,
              "\"\"",
              "\"<|tool_calls_section_end|>\"",
              {"<|tool_calls_section_begin|>"}};
    }
    default: {
      const std::string call = w.each([&](const Tool& t) {
        return fmt::format(
            "{} (\"<|channel|>commentary\")? (\" json\" | \" \"? \"<|constrain|>json\")? \"<|message|>\" {}",
            literal("to=functions." + t.name), w.json_arguments(t));
      });
      return {"\"\"", call, "\"\"", "\"\"", {"to=functions."}};
    }
  }
}

std::string reasoning_before(ChatFormat format, ToolGrammarWriter& w, bool inside) {
  if (format == ChatFormat::harmony) {
    return fmt::format(
        "(\"<|channel|>analysis<|message|>\" {} \"<|end|><|start|>assistant\")* (\"<|channel|>commentary\")? \" \" ",
        w.without("<|end|>"));
  }
  const ChatMarkup::Pair marks = chat_markup(format).reasoning.front();
  const std::string_view open = marks.open, close = marks.close;
  if (format == ChatFormat::llama_json || format == ChatFormat::llama4) return "";
  const std::string rest = fmt::format("{} {} ws ", w.without(close), literal(close));
  // White space alone must not commit it to a thought.
  return inside ? rest : fmt::format("ws ({} {})? ", literal(open), rest);
}

}  // namespace

ToolGrammar tool_grammar(ChatFormat format, const nlohmann::ordered_json& tools, const ToolGrammarOptions& options) {
  ToolGrammarWriter w(tools);
  CallShape shape;
  switch (format) {
    case ChatFormat::plain:
      usage_error("calls in the format '{}' cannot be held to a grammar; leave tool_choice to the model",
                  to_string(format));
    case ChatFormat::gemma4:
    case ChatFormat::lfm2:
    case ChatFormat::llama4:
      shape = notated_shape(format, w);
      break;
    case ChatFormat::qwen_xml:
    case ChatFormat::glm:
    case ChatFormat::minimax:
    case ChatFormat::deepseek_dsml:
      shape = xml_shape(format, w);
      break;
    default:
      shape = json_shape(format, w);
      break;
  }
  const bool several = options.parallel && format != ChatFormat::harmony;  // a harmony message ends the generation
  const std::string more = several ? fmt::format("({} {})* ", shape.between, shape.call) : "";
  std::string root = fmt::format("{} {} {}{}", shape.begin, shape.call, more, shape.end);
  if (!shape.other_begin.empty()) {
    root = fmt::format("({} | {} {} {}{})", root, shape.other_begin, shape.call, more, shape.other_end);
  }
  ToolGrammar out;
  out.control_text = chat_format_needs_control_text(format);
  if (options.choice == ToolGrammarOptions::Choice::automatic) {
    out.triggers = shape.triggers;
  } else if (options.may_think || format == ChatFormat::harmony) {
    root = reasoning_before(format, w, options.in_reasoning) + root;
  }
  out.gbnf = w.text(root);
  out.loosened = w.loosened();
  return out;
}

}  // namespace moetier
