// Anthropic's messages and OpenAI's responses.
#include <gmock/gmock.h>

#include "served.h"

namespace moetier::server {
namespace {

Json ask(int n = 12) {
  return {{"model", "fairytale"},
          {"max_tokens", n},
          {"temperature", 0},
          {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}}};
}

Json tool() {
  return {{"name", "count"},
          {"description", "Counts"},
          {"input_schema",
           {{"type", "object"},
            {"properties", {{"to", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
            {"required", {"to"}}}}};
}

std::vector<std::string> names(const std::vector<SseEvent>& events) {
  std::vector<std::string> out;
  for (const SseEvent& event : events) {
    if (event.name != "ping" && (out.empty() || out.back() != event.name)) out.push_back(event.name);
    EXPECT_EQ(event.json["type"], event.name);
  }
  return out;
}

TEST(Messages, Answers) {
  const Reply reply = post(shared().port(), "/v1/messages", ask());
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(reply.json,
               {{"id", "string"},
                {"type", "=message"},
                {"role", "=assistant"},
                {"model", "=fairytale"},
                {"content", Json::array({{{"type", "=text"}, {"text", "string"}}})},
                {"stop_reason", "=max_tokens|=end_turn"},
                {"stop_sequence", "null"},
                {"usage", {{"input_tokens", "int"}, {"output_tokens", "int"}, {"cache_read_input_tokens", "int"}}}});
  EXPECT_EQ(reply.json["usage"]["output_tokens"], 12);
}

TEST(Messages, StreamsTheSame) {
  const Json whole = post(shared().port(), "/v1/messages", ask()).json;
  const auto events = stream(shared().port(), "/v1/messages", ask());
  EXPECT_EQ(names(events), (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                                     "content_block_stop", "message_delta", "message_stop"}));
  std::string text;
  for (const SseEvent& event : events) {
    if (event.name == "content_block_delta") text += event.json["delta"]["text"].get<std::string>();
    if (event.name == "message_delta") {
      EXPECT_EQ(event.json["delta"]["stop_reason"], "max_tokens");
      EXPECT_EQ(event.json["usage"]["output_tokens"], 12);
    }
    if (event.name == "message_start") {
      expect_shape(event.json["message"],
                   {{"id", "string"}, {"content", "array"}, {"usage", {{"input_tokens", "int"}}}});
    }
  }
  EXPECT_EQ(text, whole["content"][0]["text"]);
}

TEST(Messages, StopSequence) {
  const std::string text = post(shared().port(), "/v1/messages", ask(40)).json["content"][0]["text"];
  Json body = ask(40);
  body["stop_sequences"] = Json::array({text.substr(15, 5)});
  const Json reply = post(shared().port(), "/v1/messages", body).json;
  EXPECT_EQ(reply["stop_reason"], "stop_sequence");
  EXPECT_EQ(reply["stop_sequence"], text.substr(15, 5));
}

TEST(Messages, AToolIsUsed) {
  Json body = ask(200);
  body["tools"] = Json::array({tool()});
  body["logit_bias"] = no_thoughts();
  body["tool_choice"] = {{"type", "tool"}, {"name", "count"}, {"disable_parallel_tool_use", true}};
  const Reply reply = post(shared().port(), "/v1/messages", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json["stop_reason"], "tool_use") << reply.body;
  const Json& block = reply.json["content"].back();
  expect_shape(block, {{"type", "=tool_use"}, {"id", "string"}, {"name", "=count"}, {"input", {{"to", "int"}}}});
  std::string partial;
  for (const SseEvent& event : stream(shared().port(), "/v1/messages", body)) {
    if (event.name == "content_block_delta" && event.json["delta"]["type"] == "input_json_delta") {
      partial += event.json["delta"]["partial_json"].get<std::string>();
    }
  }
  EXPECT_EQ(Json::parse(partial), block["input"]);
}

TEST(Messages, BlocksAndSystemReachThePrompt) {
  Json body = ask();
  body["system"] = Json::array({{{"type", "text"}, {"text", "Be brief."}}});
  body["messages"] = {
      {{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "Count"}}})}},
      {{"role", "assistant"},
       {"content", Json::array({{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", ""}},
                                {{"type", "tool_use"}, {"id", "t1"}, {"name", "count"}, {"input", {{"to", 3}}}}})}},
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "1 2 3"}}})}}};
  const Reply counted = post(shared().port(), "/v1/messages/count_tokens", body);
  ASSERT_EQ(counted.status, 200) << counted.body;
  const Json text =
      "<|system|>Be brief.<|user|>Count<|assistant|>Hm.<tool_call>{\"to\": 3}</tool_call><|tool|>1 2 3<|assistant|>";
  const Json tokens = post(shared().port(), "/tokenize", {{"content", text}, {"add_special", true}}).json["tokens"];
  EXPECT_EQ(counted.json["input_tokens"], tokens.size());
  EXPECT_EQ(post(shared().port(), "/v1/messages", body).status, 200);
}

TEST(Messages, ErrorsInAnthropicsShape) {
  const std::vector<Json> bodies = {
      {{"model", "m"}, {"messages", ask()["messages"]}},
      {{"model", "m"}, {"max_tokens", 4}, {"messages", "Hi"}},
      {{"model", "m"}, {"max_tokens", 4}, {"messages", {{{"role", "system"}, {"content", "x"}}}}},
      {{"model", "m"}, {"max_tokens", 4}, {"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}},
      {{"model", "m"}, {"max_tokens", 4}, {"messages", ask()["messages"]}, {"tools", {{{"name", "x"}}}}}};
  for (const Json& body : bodies) {
    const Reply reply = post(shared().port(), "/v1/messages", body);
    EXPECT_EQ(reply.status, 400) << body.dump() << reply.body;
    expect_shape(reply.json,
                 {{"type", "=error"}, {"error", {{"type", "=invalid_request_error"}, {"message", "string"}}}});
  }
}

Json input(int n = 12) {
  return {{"model", "fairytale"}, {"input", "Once upon a time"}, {"max_output_tokens", n}, {"temperature", 0}};
}

const Json kResponse = {{"id", "string"},        {"object", "=response"},
                        {"created_at", "int"},   {"status", "=completed|=incomplete|=in_progress"},
                        {"error", "null"},       {"model", "=fairytale"},
                        {"output", "array"},     {"parallel_tool_calls", "bool"},
                        {"tool_choice", "any"},  {"tools", "array"},
                        {"text", "object"},      {"store", "bool"},
                        {"usage", "object|null"}};

TEST(Responses, Answers) {
  const Reply reply = post(shared().port(), "/v1/responses", input());
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(reply.json, kResponse);
  EXPECT_EQ(reply.json["status"], "incomplete");
  EXPECT_EQ(reply.json["incomplete_details"]["reason"], "max_output_tokens");
  expect_shape(
      reply.json["output"],
      Json::array(
          {{{"type", "=message"},
            {"id", "string"},
            {"role", "=assistant"},
            {"status", "=incomplete"},
            {"content", Json::array({{{"type", "=output_text"}, {"text", "string"}, {"annotations", "array"}}})}}}));
  expect_shape(reply.json["usage"], {{"input_tokens", "int"},
                                     {"input_tokens_details", {{"cached_tokens", "int"}}},
                                     {"output_tokens", "int"},
                                     {"output_tokens_details", {{"reasoning_tokens", "int"}}},
                                     {"total_tokens", "int"}});
}

TEST(Responses, StreamsTheSame) {
  const Json whole = post(shared().port(), "/v1/responses", input()).json;
  const auto events = stream(shared().port(), "/v1/responses", input());
  EXPECT_EQ(names(events), (std::vector<std::string>{
                               "response.created", "response.in_progress", "response.output_item.added",
                               "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                               "response.content_part.done", "response.output_item.done", "response.incomplete"}));
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].json["sequence_number"], i);
    if (events[i].name == "response.output_text.delta") text += events[i].json["delta"].get<std::string>();
  }
  EXPECT_EQ(text, whole["output"][0]["content"][0]["text"]);
  const Json last = events.back().json["response"];
  expect_shape(last, kResponse);
  EXPECT_EQ(last["output"][0]["content"], whole["output"][0]["content"]);
}

TEST(Responses, LogprobsWhereTheyAreIncluded) {
  const Json plain = post(shared().port(), "/v1/responses", input(6)).json;
  EXPECT_EQ(plain["output"][0]["content"][0]["logprobs"], Json::array());
  Json body = input(6);
  body["include"] = {"reasoning.encrypted_content", "message.output_text.logprobs"};
  body["top_logprobs"] = 2;
  const Reply reply = post(shared().port(), "/v1/responses", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json["top_logprobs"], 2);
  const Json part = reply.json["output"][0]["content"][0];
  const Json token = {{"token", "string"}, {"logprob", "number"}, {"bytes", Json::array({"int"})}};
  Json shape = token;
  shape["top_logprobs"] = Json::array({token});
  expect_shape(part["logprobs"], Json::array({shape}));
  EXPECT_EQ(part["logprobs"].size(), 6u);
  std::string text;
  for (const Json& one : part["logprobs"]) {
    text += one["token"].get<std::string>();
    EXPECT_EQ(one["top_logprobs"].size(), 2u);
    EXPECT_EQ(one["top_logprobs"][0]["token"], one["token"]);  // greedy takes the likeliest
  }
  EXPECT_EQ(text, part["text"]);
  Json streamed = Json::array(), done;
  for (const SseEvent& event : stream(shared().port(), "/v1/responses", body)) {
    if (event.name == "response.output_text.delta")
      for (const Json& one : event.json["logprobs"]) streamed.push_back(one);
    if (event.name == "response.output_text.done") done = event.json["logprobs"];
  }
  EXPECT_EQ(streamed, part["logprobs"]);
  EXPECT_EQ(done, part["logprobs"]);
  body["include"] = 3;
  EXPECT_EQ(post(shared().port(), "/v1/responses", body).json["error"]["param"], "include");
}

TEST(Responses, CallsAFunctionAndTakesItsOutput) {
  Json body = input(200);
  body["tools"] = Json::array({{{"type", "function"}, {"name", "count"}, {"parameters", tool()["input_schema"]}}});
  body["tool_choice"] = "required";
  body["logit_bias"] = no_thoughts();
  body["parallel_tool_calls"] = false;
  const Reply reply = post(shared().port(), "/v1/responses", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json call = reply.json["output"].back();
  expect_shape(call, {{"type", "=function_call"}, {"call_id", "string"}, {"name", "=count"}, {"arguments", "string"}});
  expect_shape(Json::parse(call["arguments"].get<std::string>()), {{"to", "int"}});
  const auto events = stream(shared().port(), "/v1/responses", body);
  EXPECT_EQ(events.back().json["response"]["output"].back()["arguments"], call["arguments"]);
  Json next = input(4);
  next["input"] = Json::array({{{"role", "user"}, {"content", "Count"}},
                               call,
                               {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "1 2"}}});
  EXPECT_EQ(post(shared().port(), "/v1/responses", next).status, 200);
}

TEST(Responses, AFormatIsKept) {
  Json body = input(120);
  body["temperature"] = 1;
  body["text"] = {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", {{"enum", {"cat", "dog"}}}}}}};
  const Reply reply = post(shared().port(), "/v1/responses", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json["status"], "completed");
  EXPECT_THAT(reply.json["output"][0]["content"][0]["text"].get<std::string>(), ::testing::AnyOf("\"cat\"", "\"dog\""));
}

TEST(Responses, WhatNeedsStoredAnswersIsRefused) {
  Json body = input();
  body["previous_response_id"] = "resp_1";
  const Reply reply = post(shared().port(), "/v1/responses", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json["error"]["param"], "previous_response_id");
  EXPECT_EQ(post(shared().port(), "/v1/responses", {{"model", "m"}}).json["error"]["param"], "input");
  EXPECT_EQ(
      post(shared().port(), "/v1/responses", {{"input", Json::array({{{"type", "wish"}}})}}).json["error"]["param"],
      "input[0].type");
}

}  // namespace
}  // namespace moetier::server
