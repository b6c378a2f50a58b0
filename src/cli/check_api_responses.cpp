// check-api: /v1/responses.
#include <fmt/format.h>

#include <map>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/responses";

const Json kItem = {{"type", "=message|=reasoning|=function_call"},
                    {"id?", "string"},
                    {"status?", "string"},
                    {"role?", "=assistant"},
                    {"content?", Json::array({{{"type", "string"}, {"text", "string"}}})},
                    {"call_id?", "string"},
                    {"name?", "string"},
                    {"arguments?", "string"}};
const Json kStarted = {{"id", "string"},         {"object", "=response"},
                       {"created_at", "number"}, {"status", "=completed|=incomplete|=in_progress|=queued"},
                       {"model", "string"},      {"output", Json::array({kItem})}};

Json answer_shape() {
  Json shape = kStarted;
  shape["status"] = "=completed|=incomplete";
  shape["usage"] = {{"input_tokens", "int"}, {"output_tokens", "int"}, {"total_tokens", "int"}};
  return shape;
}

/// What each event has beside its type.
const std::map<std::string, Json>& event_shapes() {
  static const Json place = {{"item_id", "string"}, {"output_index?", "int"}, {"content_index?", "int"}};
  static const auto with = [](const char* name, const Json& shape) {
    Json out = place;
    out[name] = shape;
    return out;
  };
  static const std::map<std::string, Json> shapes = {
      {"response.created", {{"response", kStarted}}},
      {"response.in_progress", {{"response", kStarted}}},
      {"response.output_item.added", {{"item", kItem}}},
      {"response.output_item.done", {{"item", kItem}}},
      {"response.content_part.added", with("part", {{"type", "string"}})},
      {"response.content_part.done", with("part", {{"type", "string"}, {"text?", "string"}})},
      {"response.output_text.delta", with("delta", "string")},
      {"response.output_text.done", with("text", "string")},
      {"response.reasoning_text.delta", with("delta", "string")},
      {"response.reasoning_text.done", with("text", "string")},
      {"response.function_call_arguments.delta", with("delta", "string")},
      {"response.function_call_arguments.done", with("arguments", "string")},
      {"response.completed", {{"response", answer_shape()}}},
      {"response.incomplete", {{"response", answer_shape()}}}};
  return shapes;
}

Json ask(const ApiCheck& check, int64_t tokens = kApiTokens) {
  return {{"model", check.model}, {"input", kApiPrompt}, {"max_output_tokens", tokens}, {"temperature", 0}};
}

/// The texts of the items of a kind.
std::string text_of(const Json& response, std::string_view kind) {
  std::string text;
  for (const Json& item : response["output"]) {
    if (item["type"] != kind) continue;
    for (const Json& part : item.value("content", Json::array())) text += text_at(part, "/text");
  }
  return text;
}

std::string all_text(const Json& response) {
  return text_of(response, "reasoning") + text_of(response, "message");
}

struct Streamed {
  Json response;           ///< of the last event
  std::string text, call;  ///< the deltas of texts and of arguments
};

Streamed streamed(const ApiCheck& check, const Json& body) {
  Streamed out;
  const auto events = check.stream(kPath, body);
  int64_t number = 0;
  for (const ApiEvent& event : events) {
    if (event.json.is_null()) continue;
    const std::string type = text_at(event.json, "/type");
    expect(!type.empty() && (event.name.empty() || event.name == type), "events named by their type",
           fmt::format("'{}' and '{}'", event.name, type));
    if (const auto known = event_shapes().find(type); known != event_shapes().end())
      expect_json(event.json, known->second, type);
    if (check.target().own || event.json.contains("sequence_number"))
      expect(event.json.value("sequence_number", Json()) == number, fmt::format("sequence_number {}", number),
             event.json.dump());
    if (number++ == 0) expect(type == "response.created", "response.created first", type);
    if (type.ends_with("_text.delta")) out.text += event.json["delta"].get<std::string>();
    if (type.ends_with("arguments.delta")) out.call += event.json["delta"].get<std::string>();
    if (type == "response.completed" || type == "response.incomplete") out.response = event.json["response"];
  }
  expect(out.response.is_object(), "response.completed or response.incomplete at the end", "neither");
  return out;
}

void expect_finished(const ApiCheck& check, const Json& response) {
  if (response["status"] == "incomplete" && text_of(response, "message").empty())
    throw Unclear(
        fmt::format("the model still thinks after {} tokens; --max-tokens gives it more", check.target().max_tokens));
  expect(response["status"] == "completed", "status completed", response["status"].dump());
}

void check_schema(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["text"] = {
      {"format", {{"type", "json_schema"}, {"name", "weather"}, {"strict", true}, {"schema", document_schema()}}}};
  const Json answer = check.answer(kPath, body, answer_shape());
  expect_finished(check, answer);
  expect_document(text_of(answer, "message"));
  const Json last = streamed(check, body).response;
  expect_finished(check, last);
  expect_document(text_of(last, "message"));
}

/// The only function call in a response.
Json call_in(const ApiCheck& check, const Json& response) {
  for (const Json& item : response["output"]) {
    if (item["type"] != "function_call") continue;
    expect_json(item, {{"call_id", "string"}, {"name", "=get_weather"}, {"arguments", "string"}}, "the call");
    expect_document(item["arguments"].get<std::string>());
    return item;
  }
  expect_finished(check, response);
  throw Wrong("a function_call", response["output"].dump());
}

void check_tools(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["parallel_tool_calls"] = false;
  body["tools"] = Json::array({{{"type", "function"},
                                {"name", "get_weather"},
                                {"description", "The weather of some days"},
                                {"parameters", document_schema()}}});
  body["tool_choice"] = "required";
  const Json call = call_in(check, check.answer(kPath, body, answer_shape()));
  const Streamed stream = streamed(check, body);
  const std::string arguments = call_in(check, stream.response)["arguments"].get<std::string>();
  expect(stream.call == arguments, fmt::format("the arguments in pieces: {}", arguments), stream.call);
  Json next = ask(check, 4);
  next["input"] = Json::array({{{"role", "user"}, {"content", "The weather?"}},
                               call,
                               {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "Snow"}}});
  check.answer(kPath, next, answer_shape());
}

}  // namespace

void check_responses(ApiCheck& check) {
  const auto one = [&](const char* name, auto body) {
    return check.check(fmt::format("{}: {}", kPath, name), Need::optional, body);
  };
  Json whole = Json::object();
  const Outcome there = one("answers", [&] {
    whole = check.answer(kPath, ask(check), answer_shape());
    expect(!all_text(whole).empty(), "a text", "none");
  });
  if (there == Outcome::absent) return;
  one("streams the same", [&] {
    const Streamed stream = streamed(check, ask(check));
    expect_same(whole.contains("output") ? all_text(whole) : "", stream.text);
    expect_same(stream.text, all_text(stream.response));
  });
  one("JSON schema, whole and streamed", [&] { check_schema(check); });
  one("tools: a call, streamed too, and its result", [&] { check_tools(check); });
}

}  // namespace moetier::cli
