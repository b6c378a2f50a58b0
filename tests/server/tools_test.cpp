// Tool calls in the three chat APIs: cut off, streamed, chosen from several, and with schemas that no grammar keeps.
#include <gmock/gmock.h>

#include <functional>

#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json parameters() {
  return {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}, {"required", {"a"}}};
}
Json function(const std::string& name) {
  return {{"name", name}, {"parameters", parameters()}};
}

Json chat_body(int max_tokens, int seed) {
  return {{"messages", {{{"role", "user"}, {"content", "A man "}}}},
          {"tools", Json::array({{{"type", "function"}, {"function", function("f")}}})},
          {"tool_choice", "required"},
          {"logit_bias", no_thoughts()},
          {"temperature", 1},
          {"max_tokens", max_tokens},
          {"seed", seed}};
}
Json messages_body(int max_tokens, int seed) {
  Json body = chat_body(max_tokens, seed);
  body["model"] = "m";
  body["tools"] = Json::array({{{"name", "f"}, {"input_schema", parameters()}}});
  body["tool_choice"] = {{"type", "any"}};
  return body;
}
Json responses_body(int max_tokens, int seed) {
  return {{"input", "A man "},
          {"tools", Json::array({{{"type", "function"}, {"name", "f"}, {"parameters", parameters()}}})},
          {"tool_choice", "required"},
          {"logit_bias", no_thoughts()},
          {"temperature", 1},
          {"max_output_tokens", max_tokens},
          {"seed", seed}};
}

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call& other) const { return name == other.name && arguments == other.arguments; }
};

/// What one answer came to, from whichever API.
struct Outcome {
  std::string content, finish;
  std::vector<Call> calls;
  size_t deltas = 0;  ///< stretches of arguments in a stream
};

Outcome chat(const Json& body) {
  const Reply reply = post(shared().port(), "/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Json& choice = reply.json["choices"][0];
  Outcome out;
  out.content = choice["message"]["content"].is_null() ? "" : choice["message"]["content"].get<std::string>();
  out.finish = choice["finish_reason"];
  for (const Json& call : choice["message"].value("tool_calls", Json::array())) {
    out.calls.push_back({call["id"], call["function"]["name"], call["function"]["arguments"]});
  }
  return out;
}
Outcome chat_stream(const Json& body) {
  Outcome out;
  for (const SseEvent& event : stream(shared().port(), "/v1/chat/completions", body)) {
    if (!event.json.is_object()) continue;
    const Json& choice = event.json["choices"][0];
    if (!choice["finish_reason"].is_null()) out.finish = choice["finish_reason"];
    out.content += choice["delta"].value("content", std::string());
    for (const Json& call : choice["delta"].value("tool_calls", Json::array())) {
      const size_t index = call["index"];
      if (call.contains("id")) {
        EXPECT_EQ(index, out.calls.size());
        out.calls.push_back({call["id"], call["function"]["name"], ""});
      }
      if (index >= out.calls.size()) {
        ADD_FAILURE() << call;
        continue;
      }
      const std::string arguments = call["function"].value("arguments", std::string());
      out.calls[index].arguments += arguments;
      out.deltas += arguments.empty() ? 0 : 1;
    }
  }
  return out;
}

Outcome messages(const Json& body) {
  const Reply reply = post(shared().port(), "/v1/messages", body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  Outcome out;
  out.finish = reply.json["stop_reason"];
  for (const Json& block : reply.json["content"]) {
    if (block["type"] == "text") out.content += block["text"].get<std::string>();
    if (block["type"] == "tool_use") out.calls.push_back({block["id"], block["name"], block["input"].dump()});
  }
  return out;
}
Outcome messages_stream(const Json& body) {
  Outcome out;
  bool tool = false;
  for (const SseEvent& event : stream(shared().port(), "/v1/messages", body)) {
    if (event.name == "content_block_start") {
      const Json& block = event.json["content_block"];
      tool = block["type"] == "tool_use";
      if (tool) out.calls.push_back({block["id"], block["name"], ""});
    } else if (event.name == "content_block_delta" && tool) {
      out.calls.back().arguments += event.json["delta"]["partial_json"].get<std::string>();
      ++out.deltas;
    } else if (event.name == "content_block_delta") {
      out.content += event.json["delta"].value("text", std::string());
    } else if (event.name == "message_delta") {
      out.finish = event.json["delta"]["stop_reason"];
    }
  }
  return out;
}

void add_items(const Json& output, Outcome& out) {
  for (const Json& item : output) {
    if (item["type"] == "message") out.content += item["content"][0]["text"].get<std::string>();
    if (item["type"] == "function_call" && item["status"] == "completed") {
      out.calls.push_back({item["call_id"], item["name"], item["arguments"]});
    }
  }
}
Outcome responses(const Json& body) {
  const Reply reply = post(shared().port(), "/v1/responses", body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  Outcome out;
  out.finish = reply.json["status"];
  add_items(reply.json["output"], out);
  return out;
}
Outcome responses_stream(const Json& body) {
  Outcome out;
  std::string arguments;
  for (const SseEvent& event : stream(shared().port(), "/v1/responses", body)) {
    if (event.name == "response.output_item.added") arguments.clear();
    if (event.name == "response.function_call_arguments.delta") {
      arguments += event.json["delta"].get<std::string>();
      ++out.deltas;
    }
    if (event.name == "response.function_call_arguments.done") {
      EXPECT_EQ(event.json["arguments"], arguments);
    }
    if (event.json.contains("response")) out.finish = event.json["response"]["status"];
    if (event.name == "response.completed" || event.name == "response.incomplete") {
      add_items(event.json["response"]["output"], out);
    }
  }
  return out;
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \n") == std::string::npos;
}
bool is_object(const std::string& text) {
  return Json::parse(text, nullptr, false).is_object();
}

/// A token limit that ends an answer in the middle of calls is told, and nothing of a half call is content.
TEST(ToolCalls, ALimitIsToldAndHalfACallIsNoContent) {
  int cut = 0, whole = 0;
  for (const int max_tokens : {1, 3, 10, 17, 25, 33, 60, 200}) {
    for (const int seed : {1, 2}) {
      const std::pair<Outcome, Outcome> outcomes[] = {
          {chat(chat_body(max_tokens, seed)), chat_stream(chat_body(max_tokens, seed))},
          {messages(messages_body(max_tokens, seed)), messages_stream(messages_body(max_tokens, seed))},
          {responses(responses_body(max_tokens, seed)), responses_stream(responses_body(max_tokens, seed))}};
      for (const auto& [answer, streamed] : outcomes) {
        EXPECT_TRUE(is_blank(answer.content)) << max_tokens << " " << seed << answer.content;
        EXPECT_EQ(streamed.content, answer.content) << max_tokens << " " << seed;
        EXPECT_EQ(answer.finish, streamed.finish);
        EXPECT_THAT(answer.finish,
                    ::testing::AnyOf("length", "max_tokens", "incomplete", "tool_calls", "tool_use", "completed"));
        const bool limited =
            answer.finish == "length" || answer.finish == "max_tokens" || answer.finish == "incomplete";
        (limited ? cut : whole) += 1;
        for (const Call& call : answer.calls) EXPECT_TRUE(is_object(call.arguments)) << call.arguments;
        // What a stream has shown beyond is the beginning of one more call.
        ASSERT_GE(streamed.calls.size(), answer.calls.size());
        ASSERT_LE(streamed.calls.size(), answer.calls.size() + (limited ? 1 : 0));
        for (size_t i = 0; i < answer.calls.size(); ++i) {
          EXPECT_EQ(Json::parse(streamed.calls[i].arguments), Json::parse(answer.calls[i].arguments));
        }
        if (!limited) {
          EXPECT_GE(answer.calls.size(), 1u);
        }
      }
    }
  }
  EXPECT_GT(cut, 10);
}

/// A stop text inside a call ends it just so.
TEST(ToolCalls, AStopTextLeavesNoHalfCall) {
  Json body = chat_body(100, 1);
  body["stop"] = "arguments";
  const Outcome answer = chat(body);
  EXPECT_TRUE(is_blank(answer.content)) << answer.content;
  EXPECT_EQ(answer.finish, "stop");
  EXPECT_TRUE(answer.calls.empty());
  EXPECT_EQ(chat_stream(body).content, answer.content);
}

/// Arguments come as they are written, and together are those of the whole answer.
TEST(ToolCalls, ArgumentsAreStreamed) {
  Json chat_one = chat_body(200, 3), messages_one = messages_body(200, 3), responses_one = responses_body(200, 3);
  const Json list = {
      {"type", "object"},
      {"properties", {{"a", {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 4}, {"maxItems", 5}}}}},
      {"required", {"a"}}};
  chat_one["tools"][0]["function"]["parameters"] = list;
  chat_one["parallel_tool_calls"] = false;
  messages_one["tools"][0]["input_schema"] = list;
  messages_one["tool_choice"]["disable_parallel_tool_use"] = true;
  responses_one["tools"][0]["parameters"] = list;
  responses_one["parallel_tool_calls"] = false;
  const Outcome a = chat(chat_one), b = chat_stream(chat_one);
  EXPECT_EQ(a.finish, "tool_calls");
  EXPECT_EQ(a.calls, b.calls);
  EXPECT_GT(b.deltas, 3u);
  const Outcome c = messages(messages_one), d = messages_stream(messages_one);
  EXPECT_EQ(c.finish, "tool_use");
  ASSERT_EQ(d.calls.size(), 1u);
  EXPECT_EQ(Json::parse(d.calls[0].arguments).dump(), c.calls.at(0).arguments);
  EXPECT_GT(d.deltas, 3u);
  const Outcome e = responses(responses_one), f = responses_stream(responses_one);
  EXPECT_EQ(e.finish, "completed");
  EXPECT_EQ(e.calls, f.calls);
  EXPECT_GT(f.deltas, 3u);
  EXPECT_EQ(a.calls.at(0).arguments, e.calls.at(0).arguments);
}

/// In a response, a call that was cut off says so.
TEST(ToolCalls, ACutCallOfAResponseIsIncomplete) {
  bool seen = false;
  for (int max_tokens = 20; max_tokens < 60 && !seen; max_tokens += 3) {
    const Json body = responses_body(max_tokens, 1);
    const Json whole = post(shared().port(), "/v1/responses", body).json;
    if (whole["output"].empty() || whole["output"].back()["status"] != "incomplete" ||
        whole["output"].back()["type"] != "function_call") {
      continue;
    }
    seen = true;
    const Json item = stream(shared().port(), "/v1/responses", body).back().json["response"]["output"].back();
    EXPECT_EQ(item["status"], "incomplete");
    EXPECT_EQ(item["arguments"], whole["output"].back()["arguments"]);
    EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  }
  EXPECT_TRUE(seen);
}

/// One tool's schema does not spoil the request.
TEST(ToolCalls, AKeywordThatNoGrammarKeepsIsNoError) {
  for (const char* choice : {"required", "auto"}) {
    Json body = chat_body(120, 2);
    body["tool_choice"] = choice;
    body["tools"][0]["function"]["parameters"]["properties"]["b"] = {{"type", "array"}, {"uniqueItems", true}};
    body["tools"].push_back({{"type", "function"}, {"function", function("g")}});
    EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).status, 200);
  }
  Json strict = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
  strict["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"schema", {{"type", "array"}, {"uniqueItems", true}}}}}};
  const Reply refused = post(shared().port(), "/v1/chat/completions", strict);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("'uniqueItems' at #"));
}

TEST(ToolCalls, OnlyAllowedToolsAreCalled) {
  for (const int seed : {1, 2, 3}) {
    Json body = chat_body(200, seed);
    body["tools"].push_back({{"type", "function"}, {"function", function("g")}});
    body["parallel_tool_calls"] = false;
    const Json g = {{"type", "function"}, {"function", {{"name", "g"}}}};
    body["tool_choice"] = {{"type", "allowed_tools"},
                           {"allowed_tools", {{"mode", "required"}, {"tools", Json::array({g})}}}};
    const Outcome answer = chat(body);
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(answer.calls[0].name, "g");
    Json other = responses_body(200, seed);
    other["tools"].push_back({{"type", "function"}, {"name", "g"}, {"parameters", parameters()}});
    other["parallel_tool_calls"] = false;
    other["tool_choice"] = {{"type", "allowed_tools"},
                            {"mode", "required"},
                            {"tools", Json::array({{{"type", "function"}, {"name", "g"}}})}};
    const Outcome response = responses(other);
    ASSERT_EQ(response.calls.size(), 1u);
    EXPECT_EQ(response.calls[0].name, "g");
  }
  Json body = chat_body(4, 1);
  const auto refused = [&](Json choice, const std::string& field) {
    body["tool_choice"] = std::move(choice);
    const Reply reply = post(shared().port(), "/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body["tool_choice"];
    EXPECT_EQ(reply.json["error"]["param"], field) << reply.body;
  };
  refused({{"type", "allowed_tools"}}, "tool_choice.mode");
  refused({{"type", "allowed_tools"}, {"mode", "auto"}}, "tool_choice.tools");
  refused({{"type", "allowed_tools"}, {"allowed_tools", {{"mode", "auto"}, {"tools", Json::array()}}}},
          "tool_choice.allowed_tools.tools");
  refused({{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"name", "nobody"}}}}}, "tool_choice");
  body["tool_choice"] = {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"name", "f"}}}}};
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).status, 200);
}

/// The older fields are answered in their own shape.
TEST(ToolCalls, FunctionsAreAnsweredAsFunctionCalls) {
  Json body = chat_body(200, 2);
  body.erase("tools");
  body.erase("tool_choice");
  body["functions"] = Json::array({function("f"), function("g")});
  body["function_call"] = {{"name", "g"}};
  const Json choice = post(shared().port(), "/v1/chat/completions", body).json["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_EQ(choice["message"]["function_call"]["name"], "g");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  std::string name, arguments, finish;
  for (const SseEvent& event : stream(shared().port(), "/v1/chat/completions", body)) {
    if (!event.json.is_object()) continue;
    const Json& part = event.json["choices"][0];
    EXPECT_FALSE(part["delta"].contains("tool_calls"));
    if (!part["finish_reason"].is_null()) finish = part["finish_reason"];
    const Json call = part["delta"].value("function_call", Json::object());
    name += call.value("name", std::string());
    arguments += call.value("arguments", std::string());
  }
  EXPECT_EQ(name, "g");
  EXPECT_EQ(finish, "function_call");
  EXPECT_EQ(arguments, choice["message"]["function_call"]["arguments"]);
  // In the history they are calls and their results.
  Json next = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  next["messages"].push_back(
      {{"role", "assistant"}, {"content", nullptr}, {"function_call", {{"name", "g"}, {"arguments", "{\"a\": 7}"}}}});
  next["messages"].push_back({{"role", "function"}, {"name", "g"}, {"content", "Snow"}});
  EXPECT_THAT(post(shared().port(), "/apply-template", next).json["prompt"].get<std::string>(),
              HasSubstr("<tool_call>{\"a\": 7}</tool_call><|tool|>Snow"));
  body["tools"] = Json::array();
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).json["error"]["param"], "functions");
  body.erase("tools");
  body["function_call"] = {{"name", "nobody"}};
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).json["error"]["param"], "function_call.name");
  body["function_call"] = "perhaps";
  EXPECT_EQ(post(shared().port(), "/v1/chat/completions", body).json["error"]["param"], "function_call");
}

TEST(ToolCalls, EmptyMessagesAreCalledEmpty) {
  const Reply reply = post(shared().port(), "/v1/chat/completions", {{"messages", Json::array()}});
  EXPECT_EQ(reply.json["error"]["message"], "messages is empty; it must hold at least one message");
}

}  // namespace
}  // namespace moetier::server
