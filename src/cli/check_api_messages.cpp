// check-api: Anthropic's /v1/messages and /v1/messages/count_tokens.
#include <fmt/format.h>

#include <map>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/messages";

const Json kBlock = {{"type", "=text|=thinking|=tool_use"},
                     {"text?", "string"},
                     {"thinking?", "string"},
                     {"id?", "string"},
                     {"name?", "string"},
                     {"input?", "object"}};
const Json kUsage = {{"input_tokens", "int"}, {"output_tokens", "int"}};
const Json kStarted = {{"id", "string"},
                       {"type", "=message"},
                       {"role", "=assistant"},
                       {"model", "string"},
                       {"content", Json::array({kBlock})},
                       {"stop_reason", "null"},
                       {"stop_sequence", "null"},
                       {"usage", kUsage}};
constexpr const char* kReasons = "=end_turn|=max_tokens|=stop_sequence|=tool_use|=model_context_window_exceeded";

Json answer_shape() {
  Json shape = kStarted;
  shape["stop_reason"] = kReasons;
  shape["stop_sequence"] = "string|null";
  return shape;
}

const std::map<std::string, Json>& event_shapes() {
  static const std::map<std::string, Json> shapes = {
      {"message_start", {{"message", kStarted}}},
      {"content_block_start", {{"index", "int"}, {"content_block", kBlock}}},
      {"content_block_delta",
       {{"index", "int"},
        {"delta",
         {{"type", "=text_delta|=thinking_delta|=signature_delta|=input_json_delta"},
          {"text?", "string"},
          {"thinking?", "string"},
          {"partial_json?", "string"}}}}},
      {"content_block_stop", {{"index", "int"}}},
      {"message_delta",
       {{"delta", {{"stop_reason", kReasons}, {"stop_sequence?", "string|null"}}},
        {"usage", {{"output_tokens", "int"}}}}},
      {"message_stop", Json::object()},
      {"ping", Json::object()}};
  return shapes;
}

Json ask(const ApiCheck& check, int64_t tokens = kApiTokens) {
  return {{"model", check.model},
          {"messages", {{{"role", "user"}, {"content", kApiPrompt}}}},
          {"max_tokens", tokens},
          {"temperature", 0}};
}

std::string text_of(const Json& message, std::string_view field) {
  std::string text;
  for (const Json& block : message["content"]) text += text_at(block, fmt::format("/{}", field));
  return text;
}

/// A stream put together. Its order is checked: a message that starts and stops, one block after the other in it.
class Reader {
 public:
  void read(const ApiEvent& event) {
    const std::string type = text_at(event.json, "/type");
    expect(event.name == type, "events named by their type", fmt::format("'{}' and '{}'", event.name, type));
    const auto known = event_shapes().find(type);
    expect(known != event_shapes().end(), "events that the API has", type);
    expect_json(event.json, known->second, type);
    if (type == "ping") return;
    expect(!stopped_ && started_ == (type != "message_start"), "message_start first and message_stop last", type);
    started_ = true;
    if (type.starts_with("content_block")) return block(type, event.json);
    if (type == "message_start") return;
    expect(!open_, "blocks that stop before the message does", type);
    if (type == "message_delta") reason = text_at(event.json, "/delta/stop_reason");
    stopped_ = type == "message_stop";
  }
  void finish() const { expect(stopped_ && !reason.empty(), "message_delta and message_stop at the end", "neither"); }

  std::string text, thinking, input, reason;
  std::string name;  ///< of the last tool

 private:
  void block(const std::string& type, const Json& json) {
    const bool starts = type == "content_block_start";
    expect(starts != open_, starts ? "one block after the other" : "a block that is open", type);
    if (starts) ++blocks_;
    expect(json["index"] == blocks_ - 1, fmt::format("index {}", blocks_ - 1), json.dump());
    open_ = type != "content_block_stop";
    text += text_at(json, "/delta/text");
    thinking += text_at(json, "/delta/thinking");
    input += text_at(json, "/delta/partial_json");
    if (starts && json["content_block"]["type"] == "tool_use") name = text_at(json, "/content_block/name");
  }
  bool started_ = false, stopped_ = false, open_ = false;
  int blocks_ = 0;
};

Reader streamed(const ApiCheck& check, const Json& body) {
  Reader reader;
  for (const ApiEvent& event : check.stream(kPath, body)) reader.read(event);
  reader.finish();
  return reader;
}

void check_stop(const ApiCheck& check) {
  Json body = ask(check, 40);
  const std::string text = text_of(check.answer(kPath, body, answer_shape()), "text");
  const std::string stop = stop_in(text), wanted = text.substr(0, text.find(stop));
  body["stop_sequences"] = Json::array({stop});
  const Json answer = check.answer(kPath, body, answer_shape());
  expect(answer["stop_reason"] == "stop_sequence" && answer["stop_sequence"] == stop,
         fmt::format("stop_reason stop_sequence and stop_sequence '{}'", stop),
         fmt::format("{} and {}", answer["stop_reason"].dump(), answer["stop_sequence"].dump()));
  expect(text_of(answer, "text") == wanted, fmt::format("'{}'", wanted), text_of(answer, "text"));
}

void check_tools(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["tools"] = Json::array(
      {{{"name", "get_weather"}, {"description", "The weather of some days"}, {"input_schema", document_schema()}}});
  body["tool_choice"] = {{"type", "any"}, {"disable_parallel_tool_use", true}};
  const Json answer = check.answer(kPath, body, answer_shape());
  if (answer["stop_reason"] == "max_tokens" && text_of(answer, "text").empty())
    throw Unclear(
        fmt::format("the model still thinks after {} tokens; --max-tokens gives it more", check.target().max_tokens));
  expect(answer["stop_reason"] == "tool_use" && !answer["content"].empty(), "stop_reason tool_use", answer.dump());
  const Json& use = answer["content"].back();
  expect_json(use, {{"type", "=tool_use"}, {"id", "string"}, {"name", "=get_weather"}, {"input", "object"}},
              "the call");
  expect_document(use["input"].dump());
  const Reader stream = streamed(check, body);
  expect(stream.reason == "tool_use" && stream.name == "get_weather", "the call streamed",
         fmt::format("'{}' and stop_reason {}", stream.name, stream.reason));
  expect_document(stream.input);
  body["tool_choice"] = {{"type", "auto"}};
  body["max_tokens"] = 4;
  body["messages"].push_back({{"role", "assistant"}, {"content", answer["content"]}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"}, {"tool_use_id", use["id"]}, {"content", "Snow"}}})}});
  check.answer(kPath, body, answer_shape());
}

}  // namespace

void check_messages(ApiCheck& check) {
  const auto one = [&](const char* name, auto body) {
    return check.check(fmt::format("{}: {}", kPath, name), Need::optional, body);
  };
  Json whole = Json::object();
  const Outcome there = one("answers", [&] {
    whole = check.answer(kPath, ask(check), answer_shape());
    expect(!whole["content"].empty(), "a block of content", "none");
  });
  if (there == Outcome::absent) return;
  one("streams the same", [&] {
    const Reader stream = streamed(check, ask(check));
    expect_same(whole.contains("content") ? text_of(whole, "thinking") + text_of(whole, "text") : "",
                stream.thinking + stream.text);
    expect(stream.reason == text_at(whole, "/stop_reason"), text_at(whole, "/stop_reason"), stream.reason);
  });
  one("stop_sequences", [&] { check_stop(check); });
  one("tools: a call, streamed too, and its result", [&] { check_tools(check); });
  check.check("/v1/messages/count_tokens: counts", Need::optional, [&] {
    Json body = ask(check);
    const Json few = check.answer("/v1/messages/count_tokens", body, {{"input_tokens", "int"}});
    body["messages"][0]["content"] = std::string(kApiPrompt) + " there was a king who had a daughter.";
    const Json more = check.answer("/v1/messages/count_tokens", body, {{"input_tokens", "int"}});
    expect(few["input_tokens"] > 0 && more["input_tokens"] > few["input_tokens"], "more tokens of more text",
           fmt::format("{} and {}", few.dump(), more.dump()));
  });
}

}  // namespace moetier::cli
