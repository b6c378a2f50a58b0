// How much an answer thinks: budgets, what templates are told, and what is counted.
#include <gmock/gmock.h>

#include <thread>

#include "engine/thought_watch.h"
#include "served.h"
#include "server/api/chat_messages.h"

namespace moetier::server {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

/// Begins a thought whatever it is told, and shows what it was told.
constexpr const char* kAlwaysThinks =
    "{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor -%}"
    "[{{ enable_thinking }}|{{ thinking }}|{{ reasoning_effort }}|{{ thinking_budget }}]"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}";

constexpr const char* kNeverThinks =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

Json ask(int n = 40) {
  return {{"model", "fairytale"},
          {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
          {"max_tokens", n},
          {"temperature", 0}};
}

Json thinking(int n = 40) {
  Json body = ask(n);
  body["chat_template_kwargs"] = {{"enable_thinking", true}};
  return body;
}

Json message_of(const Reply& reply) {
  return reply.json["choices"][0]["message"];
}

const Json::json_pointer kThoughts("/usage/completion_tokens_details/reasoning_tokens");

std::string streamed(int port, const std::string& path, const Json& body, const char* what, Json* usage = nullptr) {
  std::string text;
  for (const SseEvent& event : stream(port, path, body)) {
    if (!event.json.is_object()) continue;
    if (usage != nullptr && event.json.contains("usage") && event.json["usage"].is_object()) {
      *usage = event.json["usage"];
    }
    for (const Json& choice : event.json.value("choices", Json::array())) {
      text += choice["delta"].value(what, std::string());
    }
  }
  return text;
}

Served& always() {
  static ServedOptions options = [] {
    ServedOptions o;
    o.chat_template = kAlwaysThinks;
    return o;
  }();
  static Served served(options);
  return served;
}

TEST(Budget, EndsAThoughtAndTheAnswerGoesOn) {
  const Json endless = message_of(post(shared().port(), kChat, thinking()));
  EXPECT_EQ(endless["content"], "");
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens"}) {
    Json body = thinking();
    body[name] = 7;
    const Reply reply = post(shared().port(), kChat, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json message = message_of(reply);
    EXPECT_FALSE(message["content"].get<std::string>().empty()) << reply.body;
    EXPECT_THAT(message["content"].get<std::string>(), ::testing::Not(::testing::HasSubstr("think>")));
    const std::string thought = message["reasoning_content"];
    EXPECT_FALSE(thought.empty());
    EXPECT_THAT(endless["reasoning_content"].get<std::string>(), ::testing::StartsWith(thought));
    EXPECT_EQ(reply.json.at(kThoughts), 7);
    EXPECT_EQ(reply.json["usage"]["completion_tokens"], 40);

    body["stream_options"] = {{"include_usage", true}};
    Json usage;
    EXPECT_EQ(streamed(shared().port(), kChat, body, "reasoning_content", &usage), thought);
    EXPECT_EQ(usage, reply.json["usage"]);
    EXPECT_EQ(streamed(shared().port(), kChat, body, "content"), message["content"]);
  }
}

TEST(Budget, IsTheSameWhoeverElseIsServed) {
  Json body = thinking(60);
  body["reasoning_budget"] = 9;
  body["temperature"] = 1;
  body["seed"] = 3;
  const Json alone = message_of(post(shared().port(), kChat, body));
  std::vector<Json> answers(3);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back([&, i] {
      Json mine = body;
      if (i > 0) mine["seed"] = i + 10;
      answers[i] = message_of(post(shared().port(), kChat, mine));
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answers[0], alone);
  EXPECT_NE(answers[1], alone);
}

TEST(Budget, LeavesRoomForADocument) {
  Json body = thinking(80);
  body["reasoning_budget"] = 6;
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "x"}, {"schema", {{"enum", {"cat", "dog"}}}}}}};
  for (int seed = 0; seed < 4; ++seed) {
    body["temperature"] = 1;
    body["seed"] = seed;
    const Reply reply = post(shared().port(), kChat, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "stop") << reply.body;
    EXPECT_THAT(message_of(reply)["content"].get<std::string>(), ::testing::AnyOf("\"cat\"", "\"dog\""));
    EXPECT_EQ(reply.json.at(kThoughts), 6);
  }
}

TEST(Budget, LeavesRoomForACall) {
  Json body = thinking(120);
  body["thinking_budget_tokens"] = 5;
  body["tools"] = Json::array({{{"type", "function"},
                                {"function",
                                 {{"name", "count"},
                                  {"parameters",
                                   {{"type", "object"},
                                    {"properties", {{"to", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
                                    {"required", {"to"}}}}}}}});
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  const Reply reply = post(shared().port(), kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "tool_calls") << reply.body;
  EXPECT_EQ(reply.json.at(kThoughts), 5);
}

TEST(Budget, WaitsForAGrammarThatAllowsTheEnd) {
  Json body = ask(120);
  body["reasoning_budget"] = 2;
  body["grammar"] = "root ::= \"<think>\" [a-z ]{40,} \"</think>The \" [a-z]{1,8}";
  const Reply reply = post(shared().port(), kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json message = message_of(reply);
  EXPECT_THAT(message["content"].get<std::string>(), ::testing::StartsWith("The ")) << reply.body;
  EXPECT_GE(message["reasoning_content"].get<std::string>().size(), 38u);
  EXPECT_GT(reply.json.at(kThoughts), 2);
}

TEST(Budget, OfZeroClosesTheThoughtThatTheTemplateOpens) {
  Json body = ask();
  body["reasoning_budget"] = 0;
  const std::string prompt = post(always().port(), "/apply-template", body).json["prompt"];
  EXPECT_THAT(prompt, ::testing::HasSubstr("[False|False||0]"));
  EXPECT_THAT(prompt, ::testing::EndsWith("<|assistant|><think>\n\n</think>\n\n"));
  const Reply reply = post(always().port(), kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_FALSE(message_of(reply).contains("reasoning_content")) << reply.body;
  EXPECT_FALSE(message_of(reply)["content"].get<std::string>().empty());
  EXPECT_EQ(reply.json.at(kThoughts), 0);
  // Also one that the model begins itself.
  body["grammar"] = "root ::= \"<think>\" [a-z ]* \"</think>The \" [a-z]{1,8}";
  const Reply begun = post(shared().port(), kChat, body);
  EXPECT_THAT(message_of(begun)["content"].get<std::string>(), ::testing::StartsWith("The ")) << begun.body;
  EXPECT_FALSE(message_of(begun).contains("reasoning_content")) << begun.body;
}

TEST(Budget, OfTheServerHoldsUnlessARequestHasItsOwn) {
  ServedOptions options;
  options.chat_template = kAlwaysThinks;
  options.service.defaults.reasoning_budget = 0;
  options.service.defaults.template_variables = {{"reasoning_effort", "low"}};
  options.service.defaults.split_reasoning = false;
  Served served(options);
  Json body = ask();
  const std::string closed = post(served.port(), "/apply-template", body).json["prompt"];
  EXPECT_THAT(closed, ::testing::HasSubstr("[False|False|low|0]"));
  EXPECT_EQ(post(served.port(), kChat, body).json.at(kThoughts), 0);
  body["reasoning_budget"] = 4;
  body["chat_template_kwargs"] = {{"reasoning_effort", "high"}};
  const std::string own = post(served.port(), "/apply-template", body).json["prompt"];
  EXPECT_THAT(own, ::testing::HasSubstr("[||high|4]"));
  const Reply kept = post(served.port(), kChat, body);
  EXPECT_FALSE(message_of(kept).contains("reasoning_content"));
  EXPECT_THAT(message_of(kept)["content"].get<std::string>(), ::testing::HasSubstr("</think>"));
  EXPECT_EQ(kept.json.at(kThoughts), 4);
  body["reasoning_format"] = "deepseek";
  EXPECT_TRUE(message_of(post(served.port(), kChat, body)).contains("reasoning_content"));
}

TEST(Budget, OfTheWrongKindIsNamed) {
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens"}) {
    for (const Json& bad : {Json(-2), Json("many"), Json(1.5)}) {
      Json body = ask();
      body[name] = bad;
      const Reply reply = post(shared().port(), kChat, body);
      EXPECT_EQ(reply.status, 400);
      EXPECT_EQ(reply.json["error"]["param"], name);
    }
  }
}

TEST(Budget, OfMessages) {
  Json body = ask();
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 6}};
  const Reply reply = post(always().port(), "/v1/messages", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  ASSERT_EQ(reply.json["content"].size(), 2u) << reply.body;
  EXPECT_EQ(reply.json["content"][0]["type"], "thinking");
  EXPECT_EQ(reply.json["content"][1]["type"], "text");
  std::string thought, text;
  for (const SseEvent& event : stream(always().port(), "/v1/messages", body)) {
    if (event.name != "content_block_delta") continue;
    thought += event.json["delta"].value("thinking", std::string());
    text += event.json["delta"].value("text", std::string());
  }
  EXPECT_EQ(thought, reply.json["content"][0]["thinking"]);
  EXPECT_EQ(text, reply.json["content"][1]["text"]);
  body["thinking"] = {{"type", "disabled"}};
  const Reply off = post(always().port(), "/v1/messages", body);
  ASSERT_EQ(off.json["content"].size(), 1u) << off.body;
  EXPECT_EQ(off.json["content"][0]["type"], "text");
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", "x"}};
  EXPECT_THAT(post(always().port(), "/v1/messages", body).json["error"]["message"].get<std::string>(),
              ::testing::HasSubstr("thinking.budget_tokens"));
}

TEST(Budget, OfResponses) {
  Json body = {{"input", "Once upon a time"}, {"max_output_tokens", 40}, {"temperature", 0}, {"reasoning_budget", 6}};
  const Reply reply = post(always().port(), "/v1/responses", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  ASSERT_EQ(reply.json["output"].size(), 2u) << reply.body;
  EXPECT_EQ(reply.json["output"][0]["type"], "reasoning");
  EXPECT_EQ(reply.json["output"][0]["status"], "completed");
  EXPECT_EQ(reply.json["output"][1]["status"], "incomplete");
  EXPECT_EQ(reply.json["usage"]["output_tokens_details"]["reasoning_tokens"], 6);
  const Json last = stream(always().port(), "/v1/responses", body).back().json["response"];
  for (const char* name : {"output_tokens", "output_tokens_details", "total_tokens"}) {
    EXPECT_EQ(last["usage"][name], reply.json["usage"][name]) << name;
  }
  EXPECT_EQ(last["output"][0]["content"], reply.json["output"][0]["content"]);
  EXPECT_EQ(last["output"][1]["content"], reply.json["output"][1]["content"]);
  EXPECT_EQ(last["output"][1]["status"], "incomplete");
  // Cut off in the middle of a thought.
  body.erase("reasoning_budget");
  const Json cut = post(always().port(), "/v1/responses", body).json;
  ASSERT_EQ(cut["output"].size(), 1u) << cut.dump();
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  EXPECT_EQ(cut["usage"]["output_tokens_details"]["reasoning_tokens"], 40);
  const Json cut_stream = stream(always().port(), "/v1/responses", body).back().json["response"];
  EXPECT_EQ(cut_stream["output"][0]["status"], "incomplete");
  body["reasoning"] = {{"effort", "none"}};
  EXPECT_EQ(post(always().port(), "/v1/responses", body).json["output"][0]["type"], "message");
}

TEST(Thoughts, AreNotForModelsThatDoNotThink) {
  ServedOptions options;
  options.chat_template = kNeverThinks;
  Served served(options);
  Json body = ask(200);
  body["tools"] = Json::array({{{"type", "function"},
                                {"function",
                                 {{"name", "count"},
                                  {"parameters",
                                   {{"type", "object"},
                                    {"properties", {{"to", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
                                    {"required", {"to"}}}}}}}});
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  body["temperature"] = 1;
  for (int seed = 0; seed < 20; ++seed) {
    body["seed"] = seed;
    const Reply reply = post(served.port(), kChat, body);
    EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "tool_calls") << reply.body;
    EXPECT_FALSE(message_of(reply).contains("reasoning_content")) << reply.body;
  }
  EXPECT_FALSE(template_thinks(ChatFormat::hermes, kNeverThinks));
  EXPECT_TRUE(template_thinks(ChatFormat::hermes, kTestTemplate));
}

TEST(Thoughts, EndAsTheFamilyEndsThem) {
  EXPECT_EQ(thought_ending(ChatFormat::hermes, "", "").text(), "\n</think>\n\n");
  EXPECT_EQ(thought_ending(ChatFormat::mistral, "[THINK]", "").text(), "[/THINK]");
  EXPECT_EQ(thought_ending(ChatFormat::mistral, "[THINK]", "x<think>\n").text(), "</think>");
  EXPECT_EQ(thought_ending(ChatFormat::qwen_xml, "<seed:think>", "").text(), "\n</seed:think>\n\n");
  EXPECT_EQ(thought_ending(ChatFormat::plain, "", "").text(), "");
  EXPECT_TRUE(prompt_closes_reasoning(ChatFormat::hermes, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_closes_reasoning(ChatFormat::hermes, "</think>Hm"));
}

TEST(Thoughts, AreCountedAndEndedInEachNotation) {
  struct Case {
    ChatFormat format;
    bool opened;
    std::string before, ending, after;
  };
  const std::vector<Case> cases = {
      {ChatFormat::hermes, true, "", "\n</think>\n\n", "Yes"},
      {ChatFormat::hermes, false, " <think>", "\n</think>\n\n", "Yes"},
      {ChatFormat::harmony, false, "<|channel|>analysis<|message|>", "<|end|><|start|>assistant",
       "<|channel|>final<|message|>Yes"},
      {ChatFormat::gemma4, false, "<|channel>thought", "<channel|>", "Yes"},
      {ChatFormat::mistral, false, "[THINK]", "[/THINK]", "Yes"},
  };
  const Tokenizer& words = shared().model().tokenizer();
  const auto tokens = [&](const std::string& text) {
    return words.encode(text, {.add_special = false, .parse_special = true});
  };
  for (const Case& c : cases) {
    const std::string where(to_string(c.format));
    ThoughtWatch watch(
        words, {.format = c.format, .in_reasoning = c.opened, .budget = 3, .ending = thought_ending(c.format, "", "")});
    for (const TokenId token : tokens(c.before)) {
      EXPECT_FALSE(watch.forced(nullptr)) << where;
      watch.accept(token);
    }
    const TokenId thought = tokens("king").front();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(watch.thought_tokens(), i) << where;
      EXPECT_FALSE(watch.forced(nullptr)) << where;
      watch.accept(thought);
    }
    std::vector<TokenId> forced;
    while (const auto token = watch.forced(nullptr)) {
      forced.push_back(*token);
      watch.accept(*token);
      ASSERT_LT(forced.size(), 60u) << where;
    }
    EXPECT_EQ(words.decode(forced, true), c.ending) << where;
    for (const TokenId token : tokens(c.after)) {
      EXPECT_FALSE(watch.forced(nullptr)) << where;
      watch.accept(token);
    }
    EXPECT_EQ(watch.thought_tokens(), 3) << where;
  }
}

Json variables(const char* api, const Json& fields) {
  const bool responses = std::string_view(api) == "responses";
  Json body = ask();
  if (responses) body["input"] = "x";
  body.update(fields);
  const Fields f(body);
  const GenerationDefaults none;
  return (responses                             ? read_responses(f, none, shared().model())
          : std::string_view(api) == "messages" ? read_anthropic(f, none, shared().model())
                                                : read_openai_chat(f, none, shared().model()))
      .template_variables;
}

TEST(Thoughts, WhatTemplatesAreTold) {
  const Json on = {{"enable_thinking", true}, {"thinking", true}};
  const Json off = {{"enable_thinking", false}, {"thinking", false}, {"thinking_budget", 0}};
  const auto with = [](Json base, const Json& more) {
    base.update(more);
    return base;
  };
  for (const char* api : {"chat", "responses", "messages"}) {
    EXPECT_EQ(variables(api, Json::object()), Json::object()) << api;
    EXPECT_TRUE(
        Json::diff(variables(api, {{"reasoning_effort", "high"}}), with(on, {{"reasoning_effort", "high"}})).empty());
    EXPECT_TRUE(
        Json::diff(variables(api, {{"reasoning_effort", "none"}}), with(off, {{"reasoning_effort", "none"}})).empty());
    EXPECT_EQ(variables(api, {{"chat_template_kwargs", {{"a", 1}, {"messages", 2}}}}), Json({{"a", 1}})) << api;
    EXPECT_EQ(variables(api, {{"reasoning_budget", 9}}), Json({{"thinking_budget", 9}})) << api;
    EXPECT_EQ(variables(api, {{"reasoning_budget", 0}, {"chat_template_kwargs", {{"thinking", true}}}})["thinking"],
              true);
  }
  EXPECT_TRUE(
      Json::diff(variables("responses", {{"reasoning", {{"effort", "low"}}}}), with(on, {{"reasoning_effort", "low"}}))
          .empty());
  EXPECT_TRUE(Json::diff(variables("messages", {{"thinking", {{"type", "enabled"}, {"budget_tokens", 5}}}}),
                         with(on, {{"thinking_budget", 5}}))
                  .empty());
  EXPECT_TRUE(Json::diff(variables("messages", {{"thinking", {{"type", "disabled"}}}}), off).empty());
  EXPECT_EQ(variables("messages", {{"output_config", {{"effort", "max"}}}}), Json({{"reasoning_effort", "max"}}));
}

TEST(Responses, TruncationIsRefusedOnlyWhereItWouldBeNeeded) {
  Json body = {{"input", "Once"}, {"max_output_tokens", 4}, {"truncation", "auto"}};
  const Reply fits = post(shared().port(), "/v1/responses", body);
  ASSERT_EQ(fits.status, 200) << fits.body;
  EXPECT_EQ(fits.json["truncation"], "auto");
  std::string text;
  for (int i = 0; i < 600; ++i) text += "king ";
  body["input"] = text;
  for (const bool streams : {false, true}) {
    body["stream"] = streams;
    const Reply reply = post(shared().port(), "/v1/responses", body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json["error"]["param"], "truncation") << reply.body;
    EXPECT_EQ(reply.json["error"]["code"], "context_length_exceeded");
  }
  body["truncation"] = "disabled";
  EXPECT_EQ(post(shared().port(), "/v1/responses", body).json["error"]["param"], Json());
  body["truncation"] = "some";
  EXPECT_EQ(post(shared().port(), "/v1/responses", body).json["error"]["param"], "truncation");
}

TEST(Messages, OverflowIsSaidInAnthropicsWords) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "king ";
  Json body = ask();
  body["messages"][0]["content"] = text;
  const Reply reply = post(shared().port(), "/v1/messages", body);
  EXPECT_EQ(reply.status, 400);
  const std::string said = reply.json["error"]["message"];
  EXPECT_THAT(said, ::testing::MatchesRegex("prompt is too long: [0-9]+ tokens > 512 maximum;.*"));
  const std::string chat = post(shared().port(), kChat, body).json["error"]["message"];
  EXPECT_THAT(chat, ::testing::Not(::testing::HasSubstr("prompt is too long:")));
}

TEST(Messages, TakeTheBetasNameOfAFormatAndNoModel) {
  Json body = ask(60);
  body.erase("model");
  body["output_format"] = {{"type", "json_schema"}, {"schema", {{"enum", {"cat", "dog"}}}}};
  const Reply reply = post(shared().port(), "/v1/messages", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(reply.json["content"][0]["text"].get<std::string>(), ::testing::AnyOf("\"cat\"", "\"dog\""));
  body["output_config"] = {{"format", body["output_format"]}};
  EXPECT_EQ(post(shared().port(), "/v1/messages", body).status, 400);
}

TEST(Messages, DocumentsOfTextAreText) {
  const auto ask_about = [](const Json& source) {
    Json body = ask(4);
    body["messages"][0]["content"] = Json::array(
        {{{"type", "document"}, {"title", "Tales"}, {"source", source}}, {{"type", "text"}, {"text", "Hm"}}});
    return body;
  };
  const Json part = Json::array({{{"type", "text"}, {"text", "A king."}}});
  const Json sources = {{{"type", "text"}, {"media_type", "text/plain"}, {"data", "A king."}},
                        {{"type", "content"}, {"content", part}}};
  for (const Json& source : sources) {
    const Json body = ask_about(source);
    const Fields f(body);
    EXPECT_EQ(read_anthropic(f, GenerationDefaults(), shared().model()).messages[0]["content"], "Tales\nA king.\nHm");
    EXPECT_EQ(post(shared().port(), "/v1/messages", body).status, 200);
  }
  const Reply pdf = post(shared().port(), "/v1/messages", ask_about({{"type", "base64"}, {"data", "x"}}));
  EXPECT_EQ(pdf.status, 400);
  EXPECT_THAT(pdf.json["error"]["message"].get<std::string>(),
              ::testing::HasSubstr("messages[0].content[0].source.type is 'base64'"));
}

}  // namespace
}  // namespace moetier::server
