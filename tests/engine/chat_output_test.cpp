#include "engine/chat_output.h"

#include <gtest/gtest.h>

#include "engine/random.h"
#include "engine/some_tools.h"

namespace moetier {
namespace {

using testing_support::tools;
using Json = nlohmann::ordered_json;
using Kind = ChatPiece::Kind;

ChatOutputOptions with_tools(bool in_reasoning = false) {
  ChatOutputOptions o;
  o.tool_list = tools();
  o.in_reasoning = in_reasoning;
  return o;
}

/// Pieces with neighbours of one kind joined, and a check that nothing is lost.
std::vector<ChatPiece> joined(ChatFormat format, const std::string& text, const ChatOutputOptions& options,
                              const std::vector<size_t>& cuts, bool cut_off = false) {
  ChatOutputParser parser(format, options);
  std::vector<ChatPiece> all;
  std::string raw;
  const auto take = [&](std::vector<ChatPiece> pieces) {
    for (ChatPiece& p : pieces) {
      raw += p.raw;
      const bool call = p.kind == Kind::tool_call || p.kind == Kind::call_end || p.kind == Kind::call_cut;
      EXPECT_FALSE(p.raw.empty() && !call);
      if (!call && p.kind != Kind::call_begin && !all.empty() && all.back().kind == p.kind) {
        all.back().raw += p.raw;
      } else {
        all.push_back(std::move(p));
      }
    }
  };
  size_t at = 0;
  for (const size_t cut : cuts) {
    take(parser.push(std::string_view(text).substr(at, cut - at)));
    at = cut;
  }
  take(parser.push(std::string_view(text).substr(at)));
  take(parser.finish(cut_off));
  EXPECT_EQ(raw, text);
  return all;
}

std::string shown(const std::vector<ChatPiece>& pieces) {
  std::string out;
  for (const ChatPiece& p : pieces) {
    const char* const names[] = {"content", "reasoning", "call", "markup", "begin", "arguments", "end", "cut"};
    out += std::string(names[static_cast<int>(p.kind)]) + "'" + p.raw + "'" + p.call.name + p.call.arguments +
           p.call.id + "\n";
  }
  return out;
}

struct Case {
  ChatFormat format;
  std::string text;
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool in_reasoning = false;
};

const std::vector<Case>& cases() {
  const auto weather = [](const std::string& arguments) {
    return std::pair<std::string, std::string>("get_weather", arguments);
  };
  static const std::vector<Case> all = {
      {ChatFormat::plain,
       "<think>x</think> <tool_call>{}</tool_call> ",
       "",
       "<think>x</think> <tool_call>{}</tool_call> ",
       {}},
      // Hermes and Qwen3
      {ChatFormat::hermes, "<think>\nLet me see.\n</think>\n\nHello.\n", "Let me see.", "Hello.\n", {}},
      {ChatFormat::hermes, "Let me\nsee.</think>Hello", "Let me\nsee.", "Hello", {}, true},
      {ChatFormat::hermes, "never ends ", "never ends ", "", {}, true},
      {ChatFormat::hermes, "<think>\n\n</think>\n\nHi", "", "Hi", {}},
      {ChatFormat::hermes, "Text about <think> and </think>.", "", "Text about <think> and </think>.", {}},
      {ChatFormat::hermes,
       "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern "
       "</tool_call>\"}}\n</tool_call>",
       "",
       "I look.",
       {weather("{\"city\":\"Bern </tool_call>\"}")}},
      {ChatFormat::hermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"run\", \"arguments\": "
       "{\"args\": [1]}}</tool_call>\nDone.",
       "",
       "Done.",
       {{"now", "{}"}, {"run", "{\"args\":[1]}"}}},
      {ChatFormat::hermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}",
       "",
       "",
       {{"now", "{\"a\": 1}"}}},
      {ChatFormat::hermes,
       "a <tool_call>{\"name\": \"now\", \"argum",
       "",
       "a <tool_call>{\"name\": \"now\", \"argum",
       {}},
      {ChatFormat::hermes, "a <tool_call>\nnothing</tool_call> b", "", "a <tool_call>\nnothing</tool_call> b", {}},
      {ChatFormat::hermes,
       "a <tool_call>{\"name\": \"now\", \"arguments\": {}} b",
       "",
       "a <tool_call>{\"name\": \"now\", \"arguments\": {}} b",
       {}},
      {ChatFormat::hermes,
       "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
       "",
       "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
       {}},
      {ChatFormat::hermes,
       "<tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
       "",
       "<tool_call>",
       {{"now", "{}"}}},
      {ChatFormat::hermes,
       "<tool_calls>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"run\", \"arguments\": {}}]</tool_calls>",
       "",
       "",
       {{"now", "{}"}, {"run", "{}"}}},
      {ChatFormat::hermes, "a < b <tool", "", "a < b <tool", {}},
      // Qwen3-Coder
      {ChatFormat::qwen_xml,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nSan "
       "<b>\nJos\xC3\xA9\n</parameter>\n<parameter=days>\n5\n</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {weather("{\"city\":\"San <b>\\nJos\xC3\xA9\",\"days\":5}")}},
      {ChatFormat::qwen_xml,
       "ok <function=run><parameter=args>[1, 2]</parameter><parameter=dry>True</parameter></function> then",
       "",
       "ok then",
       {{"run", "{\"args\":[1,2],\"dry\":true}"}}},
      {ChatFormat::qwen_xml,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</"
       "tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "",
       "",
       {weather("{\"city\":\"12\"}"), {"now", "{}"}}},
      {ChatFormat::qwen_xml,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRo",
       "",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRo",
       {}},
      {ChatFormat::qwen_xml,
       "<tool_call>\n<function=unknown>\n<parameter=a>\n7\n</parameter>\n<parameter=b>\nx y\n</parameter>\n</function>",
       "",
       "",
       {{"unknown", "{\"a\":7,\"b\":\"x y\"}"}}},
      // gpt-oss
      {ChatFormat::harmony,
       "<|channel|>analysis<|message|>Hmm.<|end|><|start|>assistant<|channel|>final<|message|>Hi there<|return|>",
       "Hmm.",
       "Hi there",
       {}},
      {ChatFormat::harmony, "<|channel|>final<|message|>Hi", "", "Hi", {}},
      {ChatFormat::harmony,
       "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
       "Call.",
       "",
       {weather("{\"city\": \"Rome\"}")}},
      {ChatFormat::harmony, " to=functions.now<|channel|>commentary json<|message|>{}", "", "", {{"now", "{}"}}},
      {ChatFormat::harmony,
       "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant "
       "to=functions.now<|channel|>commentary<|message|>{}<|call|>",
       "",
       "I will look.",
       {{"now", "{}"}}},
      {ChatFormat::harmony,
       "<|channel|>commentary to=functions.now<|message|>not json<|call|>",
       "",
       "<|channel|>commentary to=functions.now<|message|>not json",
       {}},
      {ChatFormat::harmony, "No header at all\n<|message|>", "", "No header at all\n<|message|>", {}},
      {ChatFormat::harmony, "<|channel|>anal", "", "<|channel|>anal", {}},
      // DeepSeek
      {ChatFormat::deepseek,
       "thinking\n</think>\n\nI "
       "will.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
       "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "thinking",
       "I will.",
       {weather("{\"city\": \"Oslo\"}"), {"now", "{}"}},
       true},
      {ChatFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "",
       {weather("{\"city\": \"Oslo\"}")}},
      {ChatFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>run<"
       "｜tool▁sep｜>{\"a",
       "",
       "<｜tool▁call▁begin｜>run<｜tool▁sep｜>{\"a",
       {{"now", "{}"}}},
      {ChatFormat::deepseek_dsml,
       "</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
       "string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
       "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "",
       "",
       {weather("{\"city\":\"5\",\"days\":3}")},
       true},
      // GLM
      {ChatFormat::glm,
       "\n<think>why</think>\nSo.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>L'Aquila "
       "\"x\"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
       "why",
       "So.",
       {weather("{\"city\":\"L'Aquila \\\"x\\\"\",\"days\":2}")}},
      {ChatFormat::glm,
       "<tool_call>now</tool_call><tool_call>run\n<arg_key>args</arg_key>\n<arg_value>[3]</arg_value>",
       "",
       "",
       {{"now", "{}"}, {"run", "{\"args\":[3]}"}}},
      // Gemma 4
      {ChatFormat::gemma4, "<|channel>thought\nmm\n<channel|>Yes.", "mm", "Yes.", {}},
      {ChatFormat::gemma4,
       "<|tool_call>call:get_weather{city:<|\"|>Bad {x}, "
       "y<|\"|>,days:3,deep:{<|\"|>a<|\"|>:[true,null,-1.5]}}<tool_call|>",
       "",
       "",
       {weather("{\"city\":\"Bad {x}, y\",\"days\":3,\"deep\":{\"a\":[true,null,-1.5]}}")}},
      {ChatFormat::gemma4,
       "<|tool_call>call:now{}<tool_call|><|tool_call>call:run{args:[1,2]}",
       "",
       "",
       {{"now", "{}"}, {"run", "{\"args\":[1,2]}"}}},
      {ChatFormat::gemma4, "<|tool_call>call:now{oops<tool_call|>", "", "<|tool_call>call:now{oops<tool_call|>", {}},
      // LFM2
      {ChatFormat::lfm2,
       "Sure.<|tool_call_start|>[get_weather(city=\"Ber\\\"lin\", days=-3), run(args=[1, 2], dry=True, more={'k': "
       "None})]<|tool_call_end|>Checking.",
       "",
       "Sure.Checking.",
       {weather("{\"city\":\"Ber\\\"lin\",\"days\":-3}"),
        {"run", "{\"args\":[1,2],\"dry\":true,\"more\":{\"k\":null}}"}}},
      {ChatFormat::lfm2,
       "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>",
       "",
       "",
       {{"now", "{}"}}},
      {ChatFormat::lfm2,
       "<|tool_call_start|>[now(1)]<|tool_call_end|>",
       "",
       "<|tool_call_start|>[now(1)]<|tool_call_end|>",
       {}},
      // MiniMax
      {ChatFormat::minimax,
       "a\n</think>\n\nb\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Lima</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
       "a",
       "b",
       {weather("{\"city\":\"Lima\"}"), {"now", "{}"}},
       true},
      // Kimi
      {ChatFormat::kimi,
       "Go<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "",
       "Go",
       {{"now", "{}"}}},
      // Llama
      {ChatFormat::llama_json,
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Nice\"}}",
       "",
       "",
       {weather("{\"city\":\"Nice\"}")}},
      {ChatFormat::llama_json,
       "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
       "",
       "",
       {{"now", "{}"}}},
      {ChatFormat::llama_json,
       "{\"name\": \"Bob\", \"parameters\": {}}",
       "",
       "{\"name\": \"Bob\", \"parameters\": {}}",
       {}},
      {ChatFormat::llama_json,
       "Try {\"name\": \"now\", \"parameters\": {}}",
       "",
       "Try {\"name\": \"now\", \"parameters\": {}}",
       {}},
      // Llama 4
      {ChatFormat::llama4,
       "[get_weather(city=\"Oslo\", days=2), now()]",
       "",
       "",
       {weather("{\"city\":\"Oslo\",\"days\":2}"), {"now", "{}"}}},
      {ChatFormat::llama4, "<|python_start|>[now()]<|python_end|>", "", "", {{"now", "{}"}}},
      {ChatFormat::llama4,
       "<|python_start|>{\"name\": \"later\", \"parameters\": {}}<|python_end|>",
       "",
       "",
       {{"later", "{}"}}},
      {ChatFormat::llama4, "{\"name\": \"now\", \"parameters\": {}}", "", "", {{"now", "{}"}}},
      {ChatFormat::llama4, "[later()]", "", "[later()]", {}},
      {ChatFormat::llama4, "[1] says so, [now()] too.", "", "[1] says so, [now()] too.", {}},
      {ChatFormat::llama4, "{\"a\": 1}", "", "{\"a\": 1}", {}},
      // Granite 3
      {ChatFormat::granite,
       "<think>So.</think>Wait.\n<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}, "
       "{\"name\": "
       "\"now\", \"arguments\": {}}]",
       "So.",
       "Wait.",
       {weather("{\"city\":\"Rome\"}"), {"now", "{}"}}},
      {ChatFormat::granite, "<|tool_call|> {\"name\": \"now\", \"arguments\": {}}", "", "", {{"now", "{}"}}},
      {ChatFormat::granite, "<|tool_call|>[{\"name\": 1}] x", "", "<|tool_call|>[{\"name\": 1}] x", {}},
      // Mistral
      {ChatFormat::mistral,
       "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"run\", \"arguments\": {\"args\": []}}]",
       "",
       "",
       {{"now", "{}"}, {"run", "{\"args\":[]}"}}},
      {ChatFormat::mistral,
       "[THINK]so[/THINK]x[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]run[CALL_ID]abc[ARGS]{\"args\": [1]}",
       "so",
       "x",
       {{"now", "{}"}, {"run", "{\"args\": [1]}"}}},
  };
  return all;
}

TEST(ChatOutput, TakesFormatsApart) {
  for (const Case& c : cases()) {
    const ChatOutput out = parse_chat_output(c.format, c.text, with_tools(c.in_reasoning));
    std::vector<std::pair<std::string, std::string>> calls;
    for (const ToolCall& call : out.tool_calls) calls.emplace_back(call.name, call.arguments);
    EXPECT_EQ(out.reasoning, c.reasoning) << to_string(c.format) << ": " << c.text;
    EXPECT_EQ(out.content, c.content) << to_string(c.format) << ": " << c.text;
    EXPECT_EQ(calls, c.calls) << to_string(c.format) << ": " << c.text;
    for (const ToolCall& call : out.tool_calls) EXPECT_TRUE(Json::parse(call.arguments).is_object());
  }
}

TEST(ChatOutput, CutsDoNotMatterAndNothingIsLost) {
  Random random(5);
  for (const Case& c : cases()) {
    const ChatOutputOptions options = with_tools(c.in_reasoning);
    const std::string whole = shown(joined(c.format, c.text, options, {}));
    std::vector<size_t> bytes;
    for (size_t i = 1; i < c.text.size(); ++i) bytes.push_back(i);
    EXPECT_EQ(shown(joined(c.format, c.text, options, bytes)), whole) << c.text;
    for (int n = 0; n < 10 && !bytes.empty(); ++n) {
      std::vector<size_t> cuts;
      for (const size_t b : bytes) {
        if (random.next() % 5 == 0) cuts.push_back(b);
      }
      EXPECT_EQ(shown(joined(c.format, c.text, options, cuts)), whole) << c.text;
    }
  }
}

/// Cases cut short, doubled and mixed, in every format: markup that is almost right.
TEST(ChatOutput, CutsDoNotMatterInBrokenTexts) {
  Random random(17);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random.next() % n); };
  for (int n = 0; n < 6000; ++n) {
    const ChatFormat format = cases()[pick(cases().size())].format;
    std::string text;
    for (size_t parts = 1 + pick(3); parts > 0; --parts) {
      const Case& c = cases()[pick(cases().size())];
      if (c.format != format && pick(4) != 0) continue;
      const size_t begin = pick(3) == 0 ? pick(c.text.size()) : 0;
      text += c.text.substr(begin, pick(2) == 0 ? pick(c.text.size() + 1) : std::string::npos);
    }
    for (size_t hits = pick(3); hits > 0 && !text.empty(); --hits) {
      const size_t at = pick(text.size());
      const std::string junk[] = {"<", "\n", "}", "\"", "|>", " ", "x", "{"};
      if (pick(2) == 0)
        text.erase(at, 1 + pick(4));
      else
        text.insert(at, junk[pick(8)]);
    }
    ChatOutputOptions options = with_tools(pick(4) == 0);
    options.call_parts = pick(2) == 0;
    const bool cut = pick(2) == 0;
    const std::string whole = shown(joined(format, text, options, {}, cut));
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) {
      if (pick(3) == 0) cuts.push_back(i);
    }
    ASSERT_EQ(shown(joined(format, text, options, cuts, cut)), whole) << to_string(format) << "\n" << text;
  }
}

/// Calls in formats that tell them while they are written.
const std::vector<std::pair<ChatFormat, std::string>>& told_calls() {
  static const std::vector<std::pair<ChatFormat, std::string>> all = {
      {ChatFormat::hermes,
       "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"args\": [1, 2],\n \"s\": "
       "\"}\\\"{\"}}\n</tool_call>\n<tool_call>\n"
       "{\"name\":\"now\",\"arguments\":{}}\n</tool_call>"},
      {ChatFormat::hermes, "<tool_call>{\"name\": \"now\", \"parameters\": {}, \"id\": \"x\"}</tool_call>"},
      {ChatFormat::llama_json,
       "{\"name\": \"run\", \"parameters\": {\"args\": [1]}}; {\"name\": \"now\", \"parameters\": {}}"},
      {ChatFormat::llama_json, "<|python_tag|>{ \"name\" : \"now\" , \"parameters\" : { } }"},
      {ChatFormat::granite,
       "<|tool_call|>[{\"name\": \"run\", \"arguments\": {\"args\": []}}, {\"name\": \"now\", \"arguments\": {}}]"},
      {ChatFormat::mistral, "[TOOL_CALLS]run[ARGS]{\"args\": [1]}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}"},
      {ChatFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>run<｜tool▁sep｜>{\"args\": [1]}<｜tool▁call▁end｜>\n"
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {ChatFormat::kimi,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>{\"args\": "
       "[]}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>"},
      {ChatFormat::harmony,
       "<|channel|>commentary to=functions.run <|constrain|>json<|message|>{\"args\": [1, 2]}<|call|>"},
  };
  return all;
}

ChatOutputOptions in_parts(ChatOutputOptions options) {
  options.call_parts = true;
  return options;
}

/// In parts comes what comes whole, byte for byte, wherever the text is cut into pieces.
TEST(ChatOutput, CallsComeInParts) {
  std::vector<std::pair<ChatFormat, std::string>> texts = told_calls();
  for (const Case& c : cases()) texts.emplace_back(c.format, c.text);
  for (size_t n = 0; n < texts.size(); ++n) {
    const auto& [format, text] = texts[n];
    const bool in_reasoning = n >= told_calls().size() && cases()[n - told_calls().size()].in_reasoning;
    const ChatOutputOptions options = in_parts(with_tools(in_reasoning));
    std::vector<size_t> bytes;
    for (size_t i = 1; i < text.size(); ++i) bytes.push_back(i);
    const std::vector<ChatPiece> pieces = joined(format, text, options, bytes);
    EXPECT_EQ(shown(joined(format, text, options, {})), shown(pieces)) << text;
    std::string arguments, name, content;
    std::vector<ToolCall> calls;
    bool told = false;
    for (const ChatPiece& p : pieces) {
      if (p.kind == Kind::content) content += p.raw;
      if (p.kind == Kind::tool_call) calls.push_back(p.call);
      if (p.kind == Kind::call_begin) {
        name = p.call.name;
        arguments.clear();
      }
      if (p.kind == Kind::call_arguments) arguments += p.raw;
      if (p.kind != Kind::call_end) continue;
      told = true;
      EXPECT_EQ(p.call.name, name) << text;
      EXPECT_EQ(p.call.arguments, arguments) << text;
      calls.push_back(p.call);
    }
    if (n < told_calls().size()) {
      EXPECT_TRUE(told) << text;
      EXPECT_EQ(content, "") << text;
      if (format == ChatFormat::llama_json) continue;  // told whole, only the first counts
    }
    const ChatOutput whole = parse_chat_output(format, text, with_tools(in_reasoning));
    // What is never closed is content when it is read as a whole; what was told is not taken back.
    if (told && (whole.tool_calls.empty() || pieces.back().kind == Kind::call_cut)) continue;
    EXPECT_EQ(content, whole.content) << text;
    ASSERT_EQ(calls.size(), whole.tool_calls.size()) << to_string(format) << text;
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i].name, whole.tool_calls[i].name) << text;
      EXPECT_EQ(calls[i].id, whole.tool_calls[i].id) << text;
      EXPECT_EQ(Json::parse(calls[i].arguments), Json::parse(whole.tool_calls[i].arguments)) << text;
    }
  }
}

TEST(ChatOutput, ArgumentsComeAsTheyAreWritten) {
  ChatOutputParser parser(ChatFormat::hermes, in_parts(with_tools()));
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"run\", \"argum").empty());
  const auto begin = parser.push("ents\": {\"args\"");
  ASSERT_EQ(begin.size(), 2u);
  EXPECT_EQ(begin[0].kind, Kind::call_begin);
  EXPECT_EQ(begin[0].call.name, "run");
  EXPECT_EQ(begin[1].raw, "{\"args\"");
  const auto more = parser.push(": [1");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].kind, Kind::call_arguments);
  EXPECT_EQ(more[0].raw, ": [1");
  const auto cut = parser.finish(true);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].kind, Kind::call_cut);
  EXPECT_EQ(cut[0].call.arguments, "{\"args\": [1");
}

/// Wherever a limit ends calls, nothing of them is content.
TEST(ChatOutput, WhatIsCutOffInACallIsNotContent) {
  std::vector<std::pair<ChatFormat, std::string>> texts = told_calls();
  for (const Case& c : cases()) {
    // An answer that is a list may be just that until it names a tool.
    const bool list = c.format == ChatFormat::llama4 && c.text[0] == '[';
    if (c.content.empty() && c.reasoning.empty() && !c.in_reasoning && !c.calls.empty() && !list)
      texts.emplace_back(c.format, c.text);
  }
  ASSERT_GT(texts.size(), 20u);
  for (const auto& [format, text] : texts) {
    for (size_t size = 1; size < text.size(); ++size) {
      for (const bool parts : {false, true}) {
        if (!parts && format == ChatFormat::llama_json && text.find("; ") != std::string::npos) continue;
        ChatOutputOptions options = with_tools();
        options.call_parts = parts;
        for (const ChatPiece& p : joined(format, text.substr(0, size), options, {}, true)) {
          EXPECT_TRUE(p.kind != Kind::content || p.raw.find_first_not_of(" \n") == std::string::npos)
              << to_string(format) << parts << "\n"
              << text.substr(0, size) << "\n"
              << p.raw;
        }
      }
    }
  }
  // Text that only looks a little like it stays.
  for (const char* text : {"a <", "[1, 2", "{\"a\": 1", "x {\"name\": \"run\"", "{\"name\": \"Bob\""}) {
    for (const ChatFormat format : {ChatFormat::hermes, ChatFormat::llama4, ChatFormat::llama_json}) {
      std::string content;
      for (const ChatPiece& p : joined(format, text, with_tools(), {}, true)) {
        if (p.kind == Kind::content) content += p.raw;
      }
      EXPECT_EQ(content, text) << to_string(format);
    }
  }
}

TEST(ChatOutput, ContentComesAsSoonAsItIsCertain) {
  ChatOutputParser parser(ChatFormat::hermes, with_tools());
  const auto text_of = [](const std::vector<ChatPiece>& pieces) {
    std::string out;
    for (const ChatPiece& p : pieces) out += p.kind == Kind::content ? p.raw : "|";
    return out;
  };
  EXPECT_EQ(text_of(parser.push("Hello wor")), "Hello wor");
  EXPECT_EQ(text_of(parser.push("ld. <to")), "ld.");
  EXPECT_EQ(text_of(parser.push("ast> <tool_")), " <toast>");
  EXPECT_EQ(text_of(parser.push("call>{\"name\": 1")), "");
  EXPECT_EQ(text_of(parser.push("}</tool_call> x")), " <tool_call>{\"name\": 1}</tool_call> x");
}

TEST(ChatOutput, WhatIsNotWantedStaysContent) {
  ChatOutputOptions options = with_tools();
  options.tools = false;
  EXPECT_EQ(parse_chat_output(ChatFormat::hermes, "<think>a</think><tool_call>{}</tool_call>", options).content,
            "<tool_call>{}</tool_call>");
  options.reasoning = false;
  EXPECT_EQ(parse_chat_output(ChatFormat::hermes, "<think>a</think>b", options).content, "<think>a</think>b");
}

TEST(ChatOutput, LongCallsTakeLinearTime) {
  std::string value;
  for (int i = 0; i < 200'000; ++i) value += "<x>y";
  const std::string text = "<tool_call>{\"name\": \"now\", \"arguments\": {\"v\": \"" + value + "\"}}</tool_call>";
  const ChatOutput out = parse_chat_output(ChatFormat::hermes, text, with_tools());
  ASSERT_EQ(out.tool_calls.size(), 1u);
  std::string open;
  for (int i = 0; i < 50'000; ++i) open += "<tool_call>{\"a\":\"";
  EXPECT_EQ(parse_chat_output(ChatFormat::hermes, open, with_tools()).content, open);
}

}  // namespace
}  // namespace moetier
