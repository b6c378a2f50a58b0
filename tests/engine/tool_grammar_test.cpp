// Grammars of tool calls: what they allow are calls that the parser reads and whose arguments keep their schemas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/chat_output.h"
#include "engine/fake_tokenizer.h"
#include "engine/grammar.h"
#include "engine/random.h"
#include "engine/schema_check.h"
#include "engine/some_tools.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing_support::error_of;
using testing_support::FakeTokenizer;
using testing_support::SchemaCheck;
using testing_support::tools;
using Json = nlohmann::ordered_json;

/// Bytes, words and the markup of all formats as control tokens.
const FakeTokenizer& call_tokenizer() {
  static const FakeTokenizer tokenizer = [] {
    FakeTokenizer t;
    for (int byte = 1; byte < 256; ++byte) t.add(std::string(1, static_cast<char>(byte)));
    for (const char* text :
         {"get_weather", "city", "\": \"", "{\"", "\"}", "</parameter>", "</arg_value>", "Paris", "12"})
      t.add(text);
    for (const char* text : {"<|channel|>", "<|message|>", "<|constrain|>", "<｜tool▁sep｜>", "<think>", "</think>",
                             "<|tool_call_begin|>", "<|\"|>", "<|tool_call>", "<tool_call|>", "<|channel>",
                             "<channel|>", "<|tool_call_start|>", "<|tool_call_end|>"})
      t.add_control(text);
    t.add_end("<|end|>");
    return t;
  }();
  return tokenizer;
}

std::map<std::string, Json> schemas_of(const Json& tool_list) {
  std::map<std::string, Json> schemas;
  for (const Json& tool : tool_list) {
    const Json& f = tool.contains("function") ? tool["function"] : tool;
    schemas[f["name"]] = f.contains("parameters") ? f["parameters"] : f["input_schema"];
  }
  return schemas;
}

/// A text that the constraint allows, drawn by chance with a liking for what closes things; not whole if it grew long.
std::string drawn_text(TokenConstraint& c, Random& random) {
  const FakeTokenizer& t = call_tokenizer();
  std::string text;
  for (int i = 0; i < 2500 && !c.complete(); ++i) {
    std::vector<float> logits(static_cast<size_t>(t.vocab_size()), 0.0f);
    c.mask(logits);
    std::vector<TokenId> open, closing;
    for (TokenId id = 0; id < t.vocab_size(); ++id) {
      if (logits[static_cast<size_t>(id)] != 0.0f) continue;
      open.push_back(id);
      if (t.text(id).find_first_of("<\"}])/") != std::string::npos) closing.push_back(id);
    }
    if (open.empty()) {
      ADD_FAILURE() << "nothing may follow: " << text;
      return text;
    }
    const auto& from = !closing.empty() && random.next() % 4 != 0 ? closing : open;
    const TokenId token = from[random.next() % from.size()];
    c.accept(token);
    text += t.text(token);
  }
  return text;
}

TEST(ToolGrammar, WhatItAllowsAreValidCalls) {
  ChatOutputOptions read;
  read.tool_list = tools();
  Random random(23);
  const FakeTokenizer& t = call_tokenizer();
  const std::map<std::string, Json> schemas = schemas_of(tools());
  for (const ChatFormat format :
       {ChatFormat::hermes, ChatFormat::qwen_xml, ChatFormat::harmony, ChatFormat::deepseek, ChatFormat::deepseek_dsml,
        ChatFormat::glm, ChatFormat::minimax, ChatFormat::kimi, ChatFormat::llama_json, ChatFormat::mistral,
        ChatFormat::gemma4, ChatFormat::lfm2, ChatFormat::granite, ChatFormat::llama4}) {
    for (const auto choice : {ToolGrammarOptions::Choice::automatic, ToolGrammarOptions::Choice::required}) {
      ToolGrammarOptions options;
      options.choice = choice;
      options.parallel = random.next() % 2 == 0;
      const ToolGrammar g = tool_grammar(format, tools(), options);
      EXPECT_EQ(g.triggers.empty(), choice == ToolGrammarOptions::Choice::required);
      const auto grammar = Grammar::compile(g.gbnf);
      const auto vocabulary = GrammarVocabulary::make(t, g.control_text);
      for (int n = 0; n < 8; ++n) {
        const auto c = make_grammar_constraint(grammar, vocabulary);
        std::string text = drawn_text(*c, random);
        if (!c->complete()) continue;  // wrote a long string
        // Harmony's lazy grammar begins in the middle of a header.
        if (format == ChatFormat::harmony && choice == ToolGrammarOptions::Choice::automatic)
          text = "<|channel|>commentary " + text;
        const ChatOutput out = parse_chat_output(format, text, read);
        ASSERT_GE(out.tool_calls.size(), 1u) << to_string(format) << "\n" << text;
        EXPECT_EQ(out.content, "") << to_string(format) << "\n" << text;
        for (const ToolCall& call : out.tool_calls) {
          ASSERT_TRUE(schemas.contains(call.name)) << text;
          EXPECT_EQ(SchemaCheck(schemas.at(call.name)).problem(Json::parse(call.arguments)), "") << text;
        }
      }
    }
  }
}

/// Formats with a notation of their own keep what JSON's grammars keep: patterns, lengths, values of every kind.
TEST(ToolGrammar, NotationsKeepTheSchema) {
  const Json list = Json::parse(R"([{"name": "ns:f.g", "parameters": {"type": "object", "properties": {
      "path": {"type": "string", "pattern": "^[a-z\"\\\\.<]{1,4}$"}, "day": {"type": "string", "format": "date"},
      "short": {"type": "string", "minLength": 1, "maxLength": 3}, "flag": {"type": "boolean"}, "none": {"type": "null"},
      "pick": {"enum": ["a b", "x\"y", "\u00e9\n", 3, true, null, ["q", false], {"k-1": "v"}]},
      "ratio": {"type": "number", "minimum": -1, "maximum": 1},
      "nested": {"type": "object", "properties": {"k": {"type": "integer"}, "list": {"type": "array", "items":
        {"type": "string", "enum": ["<", "]", "\\"]}, "minItems": 1, "maxItems": 2}}, "required": ["k", "list"]},
      "map": {"type": "object", "properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
      "any": {}}, "required": ["path", "day", "flag", "none", "pick", "nested"]}}])");
  const std::map<std::string, Json> schemas = schemas_of(list);
  ChatOutputOptions read;
  read.tool_list = list;
  Random random(29);
  for (const ChatFormat format : {ChatFormat::gemma4, ChatFormat::lfm2}) {
    ToolGrammarOptions options;
    options.choice = ToolGrammarOptions::Choice::required;
    options.parallel = false;
    const ToolGrammar g = tool_grammar(format, list, options);
    const auto grammar = Grammar::compile(g.gbnf);
    const auto vocabulary = GrammarVocabulary::make(call_tokenizer(), g.control_text);
    int whole = 0;
    for (int n = 0; n < 40; ++n) {
      const auto c = make_grammar_constraint(grammar, vocabulary);
      const std::string text = drawn_text(*c, random);
      if (!c->complete()) continue;
      ++whole;
      const ChatOutput out = parse_chat_output(format, text, read);
      ASSERT_EQ(out.tool_calls.size(), 1u) << to_string(format) << "\n" << text;
      EXPECT_EQ(out.content, "") << text;
      EXPECT_EQ(SchemaCheck(schemas.at(out.tool_calls[0].name)).problem(Json::parse(out.tool_calls[0].arguments)), "")
          << text;
    }
    EXPECT_GE(whole, 20) << to_string(format);
  }
}

/// What the models' own templates write is allowed.
TEST(ToolGrammar, NotationsTakeWhatModelsWrite) {
  const auto takes = [](ChatFormat format, const std::string& text) {
    ToolGrammarOptions options;
    options.choice = ToolGrammarOptions::Choice::required;
    const ToolGrammar g = tool_grammar(format, tools(), options);
    const auto vocabulary = GrammarVocabulary::make(call_tokenizer(), g.control_text);
    const auto c = make_grammar_constraint(Grammar::compile(g.gbnf), vocabulary);
    for (const char ch : text) {
      const TokenId token = call_tokenizer().find(std::string(1, ch));
      std::vector<float> logits(static_cast<size_t>(call_tokenizer().vocab_size()), 0.0f);
      c->mask(logits);
      if (logits[static_cast<size_t>(token)] != 0.0f) return false;
      c->accept(token);
    }
    return c->complete();
  };
  for (const char* text : {"<|tool_call>call:get_weather{city:<|\"|>S\xC3\xA3o <b>\nPaulo<|\"|>,days:3}<tool_call|>",
                           "<|channel>thought\nHm.<channel|><|tool_call>call:run{args:[1,2],dry:true}<tool_call|>",
                           "<|tool_call>call:now{}<tool_call|><|tool_call>call:run{args:[]}<tool_call|>"})
    EXPECT_TRUE(takes(ChatFormat::gemma4, text)) << text;
  for (const char* text :
       {"<|tool_call>call:get_weather{days:3}<tool_call|>", "<|tool_call>call:get_weather{city:Rome}<tool_call|>",
        "<|tool_call>call:other{}<tool_call|>", "Hello"})
    EXPECT_FALSE(takes(ChatFormat::gemma4, text)) << text;
  for (const char* text : {"<|tool_call_start|>[get_weather(city=\"Rome\\n\", days=3, units=\"C\")]<|tool_call_end|>",
                           "<think>Hm.</think><|tool_call_start|>[run(args=[1, 2], dry=True), now()]<|tool_call_end|>"})
    EXPECT_TRUE(takes(ChatFormat::lfm2, text)) << text;
  for (const char* text : {"<|tool_call_start|>[get_weather(days=3)]<|tool_call_end|>",
                           "<|tool_call_start|>[get_weather(city='Rome')]<|tool_call_end|>", "now()",
                           "<|tool_call_start|>[run(args=\"1\")]<|tool_call_end|>", "<|tool_call_start|>[]"})
    EXPECT_FALSE(takes(ChatFormat::lfm2, text)) << text;
}

TEST(ToolGrammar, Errors) {
  EXPECT_THAT(error_of([] { tool_grammar(ChatFormat::plain, tools()); }), HasSubstr("'plain'"));
  EXPECT_THAT(error_of([] { tool_grammar(ChatFormat::hermes, Json::array()); }), HasSubstr("no tools"));
  EXPECT_THAT(error_of([] { tool_grammar(ChatFormat::hermes, Json::parse(R"([{"function": {}}])")); }),
              HasSubstr("tool 0 has no name"));
  EXPECT_THAT(error_of([] { tool_grammar(ChatFormat::gemma4, Json::parse(R"([{"name": "a b"}])")); }),
              HasSubstr("cannot write the name 'a b'"));
}

std::string notes(const ToolGrammar& g) {
  std::string out;
  for (const LoosenedTool& one : g.loosened) out += one.tool + ": " + one.what + "\n";
  return out;
}

/// Whether a call of `f` with these arguments is allowed.
bool takes_call(const ToolGrammar& g, const std::string& arguments, const std::string& tool = "f") {
  return grammar_matches(*Grammar::compile(g.gbnf),
                         "<tool_call>\n{\"name\": \"" + tool + "\", \"arguments\": " + arguments + "}\n</tool_call>");
}

ToolGrammar hermes_grammar(const std::string& tools) {
  return tool_grammar(ChatFormat::hermes, Json::parse(tools), {.choice = ToolGrammarOptions::Choice::required});
}

/// A keyword that no grammar keeps loosens the place where it stands and nothing else.
TEST(ToolGrammar, KeywordsThatCannotBeKeptAreLeftOut) {
  const ToolGrammar g = hermes_grammar(R"([
    {"name": "f", "parameters": {"type": "object", "required": ["n", "tags"], "minProperties": 3, "properties": {
      "n": {"type": "integer", "maximum": 9, "multipleOf": 3},
      "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "uniqueItems": true, "maxItems": 3},
      "word": {"type": "string", "pattern": "^(?=x)y$", "maxLength": 2},
      "far": {"$ref": "http://example.org/schema"}, "odd": {"type": "banana"},
      "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "no": {"type": "string", "not": {"const": "x"}},
      "map": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false}}}},
    {"name": "g", "parameters": {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"]}}])");
  for (const char* what :
       {"f: multipleOf at #/properties/n", "f: uniqueItems at #/properties/tags", "f: pattern at #/properties/word",
        "at #/properties/far", "at #/properties/odd", "oneOf (taken as anyOf) at #/properties/one",
        "f: not at #/properties/no", "f: patternProperties at #/properties/map", "f: minProperties at #"})
    EXPECT_THAT(notes(g), HasSubstr(what));
  EXPECT_EQ(notes(g).find("g: "), std::string::npos);
  for (const char* good :
       {R"({"n": 4, "tags": ["a", "a"]})", R"({"n": 4, "tags": [], "word": "zz"})",
        R"({"n": 1, "tags": [], "far": [1, {}], "odd": "x", "one": 1.5, "no": "x", "map": {"y": 1}})"})
    EXPECT_TRUE(takes_call(g, good)) << good;
  for (const char* bad : {R"({"n": 12, "tags": []})", R"({"n": 4, "tags": ["c"]})", R"({"n": 4})",
                          R"({"n": 4, "tags": ["a", "a", "a", "a"]})", R"({"n": 4, "tags": [], "word": "zzz"})",
                          R"({"n": 4, "tags": [], "no": 1})", R"({"n": 4, "tags": [], "map": 1})", "[]"})
    EXPECT_FALSE(takes_call(g, bad)) << bad;
  EXPECT_TRUE(takes_call(g, R"({"k": true})", "g"));
  EXPECT_FALSE(takes_call(g, R"({"k": 1})", "g"));
}

/// What only annotates neither matters nor is spoken of.
TEST(ToolGrammar, AnnotationsDoNotMatter) {
  const ToolGrammar g = hermes_grammar(R"([{"name": "f", "parameters": {"$schema": "x", "title": "F", "type": "object",
    "$id": "y", "x-order": 1, "enumNames": ["p"], "required": ["a"], "additionalProperties": false, "examples": [{}],
    "properties": {"a": {"type": "string", "format": "my-own", "default": 3, "title": "A", "deprecated": true,
      "description": "d", "contentMediaType": "text/plain", "markdownDescription": "m"}}}}])");
  EXPECT_EQ(notes(g), "");
  EXPECT_TRUE(takes_call(g, R"({"a": "x"})"));
  EXPECT_FALSE(takes_call(g, R"({"a": 1})"));
  EXPECT_FALSE(takes_call(g, R"({"a": "x", "b": 1})"));
}

/// A schema that makes no sense as a whole leaves its tool with any values, and the others as they are.
TEST(ToolGrammar, ASchemaThatMakesNoSenseSpoilsNoOther) {
  const ToolGrammar g = hermes_grammar(R"([
    {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string", "minLength": 2,
      "maxLength": 1}}, "required": ["a"]}},
    {"name": "g", "parameters": {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"]}}])");
  EXPECT_THAT(notes(g), HasSubstr("f: all but the names of its parameters (minLength at #/properties/a"));
  EXPECT_TRUE(takes_call(g, R"({"a": 1})"));
  EXPECT_FALSE(takes_call(g, R"({"k": 1})", "g"));
}

/// What would be an error of a schema alone ends as soon where it is left out.
TEST(ToolGrammar, HostileSchemasEndSoonToo) {
  const auto grammar = [](const Json& schema) {
    return tool_grammar(ChatFormat::hermes, Json::array({{{"name", "f"}, {"parameters", schema}}}));
  };
  Json doubling = {{"$defs", {{"d0", {{"type", "string"}}}}}, {"properties", Json::object()}};
  for (int i = 1; i <= 40; ++i) {
    const Json lower = {{"$ref", "#/$defs/d" + std::to_string(i - 1)}};
    doubling["$defs"]["d" + std::to_string(i)] = {{"allOf", {lower, lower}}};
    doubling["properties"]["p" + std::to_string(i)] = {{"$ref", "#/$defs/d" + std::to_string(i)}};
  }
  EXPECT_THAT(notes(grammar(doubling)), HasSubstr("too entangled"));
  Json deep = {{"type", "string"}};
  for (int i = 0; i < 250; ++i) {
    const Json inner = deep;
    deep = {{"type", "object"}, {"properties", {{"a", inner}}}};
  }
  EXPECT_NE(notes(grammar(deep)), "");
  // Each level of it is a schema of its own, and each has two of the next.
  const Json growing = Json::parse(R"({"$defs": {"n": {"type": "object", "properties": {
    "a": {"allOf": [{"$ref": "#/$defs/n"}, {"properties": {"a": {"maxProperties": 1}}}]},
    "b": {"allOf": [{"$ref": "#/$defs/n"}, {"properties": {"b": {"minProperties": 1}}}]}}}}, "$ref": "#/$defs/n"})");
  EXPECT_NE(grammar(growing).gbnf, "");
  Json many = {{"properties", {{"x", {{"enum", Json::array()}}}}}};
  for (int i = 0; i < 200'000; ++i) many["properties"]["x"]["enum"].push_back("value number " + std::to_string(i));
  EXPECT_THAT(notes(grammar(many)), HasSubstr("too large"));
}

TEST(ToolGrammar, OtherNotationsAreLoosenedToo) {
  const std::string list = R"([{"name": "f", "parameters": {"properties": {"a-b": {}, "k": {"type": "integer"}},
                               "required": ["a-b"]}},
                              {"name": "h", "parameters": {"properties": {"s": {"type": "string", "minLength": 2}},
                               "anyOf": [{"required": ["s"]}, {"required": ["t"]}]}}])";
  const ToolGrammar python = tool_grammar(ChatFormat::lfm2, Json::parse(list));
  EXPECT_THAT(notes(python), HasSubstr("'a-b'"));
  EXPECT_THAT(notes(python), HasSubstr("'anyOf'"));
  EXPECT_TRUE(grammar_matches(*Grammar::compile(python.gbnf), "<|tool_call_start|>[f(k=\"x\")]<|tool_call_end|>"));
  const ToolGrammar xml = tool_grammar(ChatFormat::qwen_xml, Json::parse(list));
  EXPECT_EQ(notes(xml), "h: anyOf at #\nh: minLength at #/properties/s\n");
}

}  // namespace
}  // namespace moetier
