// OpenAI's chat and text completions.
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <thread>

#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

const Json kUsage = {{"prompt_tokens", "int"},
                     {"completion_tokens", "int"},
                     {"total_tokens", "int"},
                     {"prompt_tokens_details", {{"cached_tokens", "int"}}},
                     {"completion_tokens_details", {{"reasoning_tokens", "int"}}}};
const Json kLogprob = {{"token", "string"}, {"logprob", "number"}, {"bytes", Json::array({"int"})}};

Json ask(int n = 16) {
  return {{"model", "fairytale"},
          {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
          {"max_tokens", n},
          {"temperature", 0}};
}

Json weather_tool() {
  return {{"type", "function"},
          {"function",
           {{"name", "get_weather"},
            {"description", "The weather of a place"},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}, {"cold", {{"type", "boolean"}}}}},
              {"required", {"days", "cold"}}}}}}};
}

TEST(Chat, Answers) {
  const Reply reply = post(shared().port(), "/v1/chat/completions", ask());
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(
      reply.json,
      {{"id", "string"},
       {"object", "=chat.completion"},
       {"created", "int"},
       {"model", "=fairytale"},
       {"system_fingerprint", "string"},
       {"choices", Json::array({{{"index", "int"},
                                 {"message", {{"role", "=assistant"}, {"content", "string"}, {"refusal", "null"}}},
                                 {"logprobs", "null"},
                                 {"finish_reason", "=length|=stop"}}})},
       {"usage", kUsage},
       {"timings", "object"}});
  EXPECT_TRUE(reply.json["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(reply.json["usage"]["completion_tokens"], 16);
}

TEST(Chat, StreamsTheSame) {
  const Json whole = post(shared().port(), "/v1/chat/completions", ask()).json;
  Json body = ask();
  body["stream_options"] = {{"include_usage", true}};
  auto events = stream(shared().port(), "/v1/chat/completions", body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back().text, "[DONE]");
  events.pop_back();
  const Json last = events.back().json;
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
  events.pop_back();
  std::string text;
  for (const SseEvent& event : events) {
    expect_shape(
        event.json,
        {{"id", "string"},
         {"object", "=chat.completion.chunk"},
         {"created", "int"},
         {"model", "=fairytale"},
         {"usage", "null"},
         {"choices", Json::array({{{"index", "int"}, {"delta", "object"}, {"finish_reason", "=length|=stop|null"}}})}});
    EXPECT_EQ(event.json["id"], events[0].json["id"]);
    text += event.json["choices"][0]["delta"].value("content", std::string());
  }
  EXPECT_EQ(events[0].json["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.back().json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
}

TEST(Chat, LogprobsOfEveryToken) {
  Json body = ask(5);
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  Json shape = kLogprob;
  shape["top_logprobs"] = Json::array({kLogprob});
  const Json content = reply.json["choices"][0]["logprobs"]["content"];
  expect_shape(content, Json::array({shape}));
  EXPECT_EQ(content.size(), 5u);
  std::string text;
  for (const Json& token : content) {
    text += token["token"].get<std::string>();
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
  }
  EXPECT_EQ(text, reply.json["choices"][0]["message"]["content"]);
  size_t streamed = 0;
  for (const SseEvent& event : stream(shared().port(), "/v1/chat/completions", body)) {
    if (!event.json.is_object() || event.json["choices"].empty()) continue;
    const Json& logprobs = event.json["choices"][0]["logprobs"];
    if (logprobs.is_object()) streamed += logprobs["content"].size();
  }
  EXPECT_EQ(streamed, 5u);
}

TEST(Chat, SeveralChoicesDifferAndAreEachReproducible) {
  Json body = ask(12);
  body["n"] = 3;
  body["temperature"] = 1.2;
  body["seed"] = 11;
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  ASSERT_EQ(reply.json["choices"].size(), 3u);
  EXPECT_NE(reply.json["choices"][0]["message"], reply.json["choices"][1]["message"]);
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).json["choices"], reply.json["choices"]);
  body["n"] = 1;
  body["seed"] = 12;  // the second choice's
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).json["choices"][0]["message"],
            reply.json["choices"][1]["message"]);
  body["n"] = 3;
  body["seed"] = 11;
  std::map<int, std::string> texts;
  for (const SseEvent& event : stream(shared().port(), "/v1/chat/completions", body)) {
    if (!event.json.is_object()) continue;
    const Json& choice = event.json["choices"][0];
    texts[choice["index"]] += choice["delta"].value("content", std::string());
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(texts[i], reply.json["choices"][static_cast<size_t>(i)]["message"]["content"]);
}

TEST(Chat, AJsonSchemaIsKept) {
  Json body = ask(250);
  body["temperature"] = 1;
  body["seed"] = 5;
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "animal"},
        {"schema",
         {{"type", "object"},
          {"properties",
           {{"legs", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}}, {"kind", {{"enum", {"cat", "dog"}}}}}},
          {"required", {"legs", "kind"}},
          {"additionalProperties", false}}}}}};
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json document = Json::parse(reply.json["choices"][0]["message"]["content"].get<std::string>());
  expect_shape(document, {{"legs", "int"}, {"kind", "=cat|=dog"}});
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "stop");
}

TEST(Chat, ThoughtsComeBeforeADocument) {
  Json body = ask(400);
  body["temperature"] = 1;
  body["seed"] = 1;
  body["logit_bias"] = {{"</think>", 20}};
  body["chat_template_kwargs"] = {{"enable_thinking", true}};
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "x"}, {"schema", {{"enum", {"cat", "dog"}}}}}}};
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json& message = reply.json["choices"][0]["message"];
  if (reply.json["choices"][0]["finish_reason"] == "stop") {
    EXPECT_THAT(message["content"].get<std::string>(), ::testing::AnyOf("\"cat\"", "\"dog\""));
  } else {
    EXPECT_FALSE(message["reasoning_content"].get<std::string>().empty());
  }
}

TEST(Chat, ARequiredToolIsCalled) {
  Json body = ask(200);
  body["tools"] = Json::array({weather_tool()});
  body["tool_choice"] = "required";
  body["logit_bias"] = no_thoughts();
  body["parallel_tool_calls"] = false;
  body["temperature"] = 1;
  body["seed"] = 2;
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json& choice = reply.json["choices"][0];
  ASSERT_EQ(choice["finish_reason"], "tool_calls") << reply.body;
  expect_shape(choice["message"]["tool_calls"],
               Json::array({{{"id", "string"},
                             {"type", "=function"},
                             {"function", {{"name", "=get_weather"}, {"arguments", "string"}}}}}));
  const Json arguments = Json::parse(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
  expect_shape(arguments, {{"days", "int"}, {"cold", "bool"}});
  // The same in a stream.
  std::string name, streamed;
  Json finish;
  for (const SseEvent& event : stream(shared().port(), "/v1/chat/completions", body)) {
    if (!event.json.is_object()) continue;
    const Json& part = event.json["choices"][0];
    if (!part["finish_reason"].is_null()) finish = part["finish_reason"];
    for (const Json& call : part["delta"].value("tool_calls", Json::array())) {
      name += call["function"].value("name", std::string());
      streamed += call["function"].value("arguments", std::string());
    }
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(streamed, choice["message"]["tool_calls"][0]["function"]["arguments"]);
  EXPECT_EQ(finish, "tool_calls");
}

TEST(Chat, ToolsInHistory) {
  Json body = ask(4);
  body["tools"] = Json::array({weather_tool()});
  body["messages"] = {{{"role", "user"}, {"content", "Weather?"}},
                      {{"role", "assistant"},
                       {"content", nullptr},
                       {"tool_calls",
                        {{{"id", "c1"},
                          {"type", "function"},
                          {"function", {{"name", "get_weather"}, {"arguments", "{\"days\": 2}"}}}}}}},
                      {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "Snow"}}};
  const Reply prompt = post(shared().port(), "/apply-template", body);
  ASSERT_EQ(prompt.status, 200) << prompt.body;
  EXPECT_THAT(prompt.json["prompt"].get<std::string>(),
              HasSubstr("<tool_call>{\"days\": 2}</tool_call><|tool|>Snow<|assistant|>"));
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).status, 200);
}

TEST(Chat, AnAssistantsLastMessageIsContinued) {
  Json body = ask(1);
  body["messages"].push_back({{"role", "assistant"}, {"content", "There was"}});
  const Reply prompt = post(shared().port(), "/apply-template", body);
  EXPECT_EQ(prompt.json["prompt"], "<|user|>Once upon a time<|assistant|>There was");
}

TEST(Chat, WrongFieldsAreNamed) {
  const Json message = {{"role", "user"}, {"content", "Hi"}};
  const auto with = [&](const char* name, Json value) {
    Json body = {{"messages", Json::array({message})}};
    body[name] = std::move(value);
    return body;
  };
  const std::vector<std::pair<Json, std::string>> cases = {
      {Json::object(), "messages"},
      {with("messages", Json::array()), "messages"},
      {with("messages", "Hi"), "messages"},
      {with("messages", Json::array({"Hi"})), "messages[0]"},
      {with("messages", Json::array({{{"role", "wizard"}, {"content", "x"}}})), "messages[0].role"},
      {with("messages", Json::array({{{"role", "user"}}})), "messages[0].content"},
      {with("messages", Json::array({{{"role", "user"}, {"content", 3}}})), "messages[0].content"},
      {with("messages", Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "image_url"}}})}}})),
       "messages[0].content[0].type"},
      {with("model", 4), "model"},
      {with("n", 0), "n"},
      {with("n", 10000), "n"},
      {with("top_logprobs", 3), "top_logprobs"},
      {with("tools", "hammer"), "tools"},
      {with("tools", Json::array({{{"type", "hammer"}}})), "tools[0].type"},
      {with("tools", Json::array({{{"type", "function"}, {"function", Json::object()}}})), "tools[0].function.name"},
      {with("tool_choice", "required"), "tool_choice"},
      {with("tool_choice", "perhaps"), "tool_choice"},
      {with("response_format", {{"type", "xml"}}), "response_format.type"},
      {with("response_format", {{"type", "json_schema"}}), "response_format.schema"},
      {with("stream_options", {{"include_usage", "yes"}}), "stream_options.include_usage"},
  };
  for (const auto& [body, field] : cases) {
    const Reply reply = post(shared().port(), "/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    expect_shape(
        reply.json,
        {{"error",
          {{"message", "string"}, {"type", "=invalid_request_error"}, {"param", "=" + field}, {"code", "any"}}}});
  }
}

TEST(TextCompletion, AnswersAndStreams) {
  Json body = {{"model", "m"}, {"prompt", "Once upon a time"}, {"max_tokens", 10}, {"temperature", 0}};
  const Reply whole = post(shared().port(), "/v1/completions", body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  expect_shape(
      whole.json,
      {{"id", "string"},
       {"object", "=text_completion"},
       {"created", "int"},
       {"model", "=fairytale"},
       {"choices",
        Json::array(
            {{{"text", "string"}, {"index", "int"}, {"logprobs", "null"}, {"finish_reason", "=length|=stop"}}})},
       {"usage", kUsage}});
  auto events = stream(shared().port(), "/v1/completions", body);
  EXPECT_EQ(events.back().text, "[DONE]");
  events.pop_back();
  std::string text;
  for (const SseEvent& event : events) text += event.json["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, whole.json["choices"][0]["text"]);
  EXPECT_EQ(events.back().json["choices"][0]["finish_reason"], "length");
}

TEST(TextCompletion, EchoAndLogprobs) {
  const Json body = {{"prompt", Json::array({"The king", "The queen"})},
                     {"max_tokens", 3},
                     {"temperature", 0},
                     {"n", 2},
                     {"echo", true},
                     {"logprobs", 2}};
  const Reply reply = post(shared().port(), "/v1/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  ASSERT_EQ(reply.json["choices"].size(), 4u);
  EXPECT_TRUE(reply.json["choices"][0]["text"].get<std::string>().starts_with("The king"));
  EXPECT_TRUE(reply.json["choices"][3]["text"].get<std::string>().starts_with("The queen"));
  expect_shape(reply.json["choices"][0]["logprobs"], {{"tokens", Json::array({"string"})},
                                                      {"token_logprobs", Json::array({"number|null"})},
                                                      {"top_logprobs", Json::array({"object|null"})},
                                                      {"text_offset", Json::array({"int"})}});
  EXPECT_EQ(reply.json["usage"]["completion_tokens"], 12);
}

TEST(Embeddings, AreTheLastHiddenStateScaledToOne) {
  const Reply reply = post(shared().port(), "/v1/embeddings",
                           {{"model", "m"}, {"input", Json::array({"The king", "The queen", "The king"})}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(
      reply.json,
      {{"object", "=list"},
       {"model", "=fairytale"},
       {"data", Json::array({{{"object", "=embedding"}, {"index", "int"}, {"embedding", Json::array({"number"})}}})},
       {"usage", {{"prompt_tokens", "int"}, {"total_tokens", "int"}}}});
  ASSERT_EQ(reply.json["data"].size(), 3u);
  const auto king = reply.json["data"][0]["embedding"].get<std::vector<float>>();
  EXPECT_EQ(king.size(), 256u);
  EXPECT_EQ(reply.json["data"][2]["embedding"], reply.json["data"][0]["embedding"]);
  EXPECT_NE(reply.json["data"][1]["embedding"], reply.json["data"][0]["embedding"]);
  double squares = 0;
  for (const float x : king) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(squares, 1, 1e-5);
  // The same numbers as bytes.
  const Reply packed = post(shared().port(), "/v1/embeddings", {{"input", "The king"}, {"encoding_format", "base64"}});
  const std::string text = packed.json["data"][0]["embedding"];
  EXPECT_EQ(text.size(), (256 * 4 + 2) / 3 * 4);
  std::string bytes;
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < text.size(); i += 4) {
    unsigned group = 0;
    for (size_t k = 0; k < 4; ++k)
      group = group << 6 | (text[i + k] == '=' ? 0u : static_cast<unsigned>(digits.find(text[i + k])));
    for (const unsigned shift : {16u, 8u, 0u}) bytes += static_cast<char>(group >> shift & 255);
  }
  std::vector<float> unpacked(256);
  std::memcpy(unpacked.data(), bytes.data(), 1024);
  EXPECT_EQ(unpacked, king);
}

TEST(Embeddings, WrongInputIsNamed) {
  EXPECT_EQ(post(shared().port(), "/v1/embeddings", Json::object()).json["error"]["param"], "input");
  EXPECT_EQ(post(shared().port(), "/v1/embeddings", {{"input", "x"}, {"dimensions", 7}}).json["error"]["param"],
            "dimensions");
  EXPECT_EQ(
      post(shared().port(), "/v1/embeddings", {{"input", "x"}, {"encoding_format", "hex"}}).json["error"]["param"],
      "encoding_format");
}

TEST(Chat, TwoClientsAtOnceGetWhatEachGetsAlone) {
  std::vector<Json> bodies;
  for (int i = 0; i < 8; ++i) {
    Json body = ask(24);
    body["messages"][0]["content"] = "Tale number " + std::to_string(i) + ": there was a king";
    body["temperature"] = 0.9;
    body["seed"] = i;
    bodies.push_back(body);
  }
  std::vector<Json> together(bodies.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back(
        [&, i] { together[i] = post(shared().port(), "/v1/chat/completions", bodies[i]).json["choices"]; });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_EQ(post(shared().port(), "/v1/chat/completions", bodies[i]).json["choices"], together[i]);
  }
}

}  // namespace
}  // namespace moetier::server
