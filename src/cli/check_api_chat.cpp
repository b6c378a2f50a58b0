// check-api: /v1/chat/completions.
#include <fmt/format.h>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/chat/completions";

const Json kUsage = {{"prompt_tokens", "int"}, {"completion_tokens", "int"}, {"total_tokens", "int"}};
const Json kToken = {{"token", "string"}, {"logprob", "number"}, {"bytes", "array|null"}};
const Json kCall = {
    {"id", "string"}, {"type", "=function"}, {"function", {{"name", "string"}, {"arguments", "string"}}}};
const Json kAnswer = {{"id", "string"},
                      {"object", "=chat.completion"},
                      {"created", "int"},
                      {"model", "string"},
                      {"choices", Json::array({{{"index", "int"},
                                                {"message",
                                                 {{"role", "=assistant"},
                                                  {"content", "string|null"},
                                                  {"reasoning_content?", "string|null"},
                                                  {"tool_calls?", Json::array({kCall})}}},
                                                {"logprobs?", "object|null"},
                                                {"finish_reason", "=stop|=length|=tool_calls"}}})},
                      {"usage", kUsage}};
const Json kDelta = {{"role?", "=assistant"},
                     {"content?", "string|null"},
                     {"reasoning_content?", "string|null"},
                     {"tool_calls?", Json::array({{{"index", "int"},
                                                   {"id?", "string"},
                                                   {"type?", "=function"},
                                                   {"function", {{"name?", "string"}, {"arguments?", "string"}}}}})}};
const Json kChunk = {{"id", "string"},
                     {"object", "=chat.completion.chunk"},
                     {"created", "int"},
                     {"model", "string"},
                     {"usage?", "object|null"},
                     {"choices", Json::array({{{"index", "int"},
                                               {"delta", kDelta},
                                               {"logprobs?", "object|null"},
                                               {"finish_reason", "=stop|=length|=tool_calls|null"}}})}};

Json ask(const ApiCheck& check, int64_t tokens = kApiTokens) {
  return {{"model", check.model},
          {"messages", {{{"role", "user"}, {"content", kApiPrompt}}}},
          {"max_tokens", tokens},
          {"temperature", 0}};
}

Json answered(const ApiCheck& check, const Json& body) {
  Json answer = check.answer(kPath, body, kAnswer);
  expect(!answer["choices"].empty(), "a choice", "none");
  return answer;
}

std::string content_of(const Json& answer) {
  return text_at(answer, "/choices/0/message/content");
}

std::string text_of(const Json& answer) {
  return text_at(answer, "/choices/0/message/reasoning_content") + content_of(answer);
}

std::string finish_of(const Json& answer) {
  return text_at(answer, "/choices/0/finish_reason");
}

/// A stream put together, its events checked one by one.
struct Streamed {
  std::string reasoning, content, name, arguments, finish;
  size_t logprobs = 0;
  Json usage;
};

void add(Streamed& out, const Json& choice) {
  const Json& delta = choice["delta"];
  out.reasoning += text_at(delta, "/reasoning_content");
  out.content += text_at(delta, "/content");
  for (const Json& call : delta.value("tool_calls", Json::array())) {
    out.name += text_at(call, "/function/name");
    out.arguments += text_at(call, "/function/arguments");
  }
  if (choice["finish_reason"].is_string()) out.finish = choice["finish_reason"].get<std::string>();
  const Json::json_pointer logprobs("/logprobs/content");
  if (choice.contains(logprobs)) out.logprobs += choice.at(logprobs).size();
}

Streamed streamed(const ApiCheck& check, const Json& body) {
  Streamed out;
  std::string id;
  const auto events = check.stream(kPath, body);
  for (const ApiEvent& event : events) {
    if (event.json.is_null()) continue;
    expect_json(event.json, kChunk, "an event");
    if (id.empty()) id = event.json["id"].get<std::string>();
    expect(event.json["id"] == id, "one id in all events", event.json["id"].dump());
    for (const Json& choice : event.json["choices"]) add(out, choice);
    if (event.json.contains("usage") && event.json["usage"].is_object()) out.usage = event.json["usage"];
  }
  expect(events.back().json.is_null(), "[DONE] at the end", events.back().json.dump());
  expect(!out.finish.empty(), "a finish_reason", "none");
  return out;
}

/// The document in an answer, unless the model was still thinking when its tokens were used up.
std::string finished(const ApiCheck& check, const std::string& content, const std::string& finish) {
  if (finish == "length" && content.empty())
    throw Unclear(
        fmt::format("the model still thinks after {} tokens; --max-tokens gives it more", check.target().max_tokens));
  expect(finish == "stop", "an answer that comes to its end",
         fmt::format("finish_reason {} after {}", finish, content));
  return content;
}

void check_logprobs(const ApiCheck& check) {
  Json body = ask(check, 5);
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json answer = answered(check, body);
  Json shape = kToken;
  shape["top_logprobs"] = Json::array({kToken});
  const Json& logprobs = answer["choices"][0].value("logprobs", Json());
  expect_json(logprobs, {{"content", Json::array({shape})}}, "logprobs");
  const Json& tokens = logprobs["content"];
  expect(!tokens.empty(), "logprobs of every token", "none");
  for (const Json& token : tokens) {
    expect(token["logprob"].get<double>() <= 0, "logprobs of at most 0", token["logprob"].dump());
    expect(token["top_logprobs"].size() == 2, "2 top_logprobs", token["top_logprobs"].dump());
  }
  const size_t events = streamed(check, body).logprobs;
  expect(events == tokens.size(), fmt::format("{} logprobs streamed", tokens.size()), std::to_string(events));
}

void check_stop(const ApiCheck& check) {
  Json body = ask(check, 40);
  const std::string text = content_of(answered(check, body));
  const std::string stop = stop_in(text);
  body["stop"] = Json::array({stop});
  const Json answer = answered(check, body);
  expect(finish_of(answer) == "stop", "finish_reason stop", finish_of(answer));
  const std::string wanted = text.substr(0, text.find(stop));
  expect(content_of(answer) == wanted, fmt::format("'{}'", wanted), fmt::format("'{}'", content_of(answer)));
}

void check_seed(const ApiCheck& check) {
  Json body = ask(check);
  body["temperature"] = 1;
  body["seed"] = 7;
  const std::string first = text_of(answered(check, body));
  const std::string second = text_of(answered(check, body));
  expect(!first.empty() && first == second, fmt::format("the same text of the same seed: '{}'", first), second);
}

void check_choices(const ApiCheck& check) {
  Json body = ask(check);
  body["temperature"] = 1;
  body["n"] = 2;
  const Json answer = answered(check, body);
  const Json& choices = answer["choices"];
  expect(choices.size() == 2, "2 choices", std::to_string(choices.size()));
  expect(choices[0]["index"] == 0 && choices[1]["index"] == 1, "choices 0 and 1", choices.dump());
}

void check_schema(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "weather"}, {"strict", true}, {"schema", document_schema()}}}};
  const Json answer = answered(check, body);
  expect_document(finished(check, content_of(answer), finish_of(answer)));
  const Streamed stream = streamed(check, body);
  expect_document(finished(check, stream.content, stream.finish));
}

void check_object(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["response_format"] = {{"type", "json_object"}};
  const Json answer = answered(check, body);
  const std::string text = content_of(answer);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (finish_of(answer) == "length" && !text.empty()) {  // cut off: its beginning can be judged
    expect(begin == std::string::npos || text[begin] == '{', "the beginning of a JSON object", text);
    return;
  }
  expect(Json::parse(finished(check, text, finish_of(answer)), nullptr, false).is_object(), "a JSON object", text);
}

void check_tools(ApiCheck& check) {
  Json body = ask(check, check.target().max_tokens);
  body["logit_bias"] = check.no_thoughts();
  body["parallel_tool_calls"] = false;
  body["tools"] = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "get_weather"}, {"description", "The weather of some days"}, {"parameters", document_schema()}}}}});
  body["tool_choice"] = "required";
  const Json answer = answered(check, body);
  if (finish_of(answer) == "length" && content_of(answer).empty()) finished(check, "", "length");
  expect(finish_of(answer) == "tool_calls", "finish_reason tool_calls", finish_of(answer));
  const Json& message = answer["choices"][0]["message"];
  const Json& calls = message.value("tool_calls", Json::array());
  expect(calls.size() == 1, "one tool call", std::to_string(calls.size()));
  expect(calls[0]["function"]["name"] == "get_weather", "a call of get_weather", calls.dump());
  expect_document(calls[0]["function"]["arguments"].get<std::string>());
  const Streamed stream = streamed(check, body);
  expect(stream.finish == "tool_calls" && stream.name == "get_weather", "the call streamed",
         fmt::format("'{}' and finish_reason {}", stream.name, stream.finish));
  expect_document(stream.arguments);
  body["tool_choice"] = "auto";
  body["max_tokens"] = 4;
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", calls[0]["id"]}, {"content", "Snow"}});
  answered(check, body);
}

}  // namespace

void check_chat(ApiCheck& check) {
  const auto one = [&](const char* name, auto body) {
    return check.check(fmt::format("{}: {}", kPath, name), Need::required, body);
  };
  Json whole;
  one("answers", [&] {
    whole = answered(check, ask(check));
    const Json& usage = whole["usage"];
    const int64_t prompt = usage["prompt_tokens"].get<int64_t>(), made = usage["completion_tokens"].get<int64_t>();
    expect(prompt > 0 && made > 0 && made <= kApiTokens && usage["total_tokens"] == prompt + made,
           fmt::format("a prompt, up to {} tokens, and their sum", kApiTokens), usage.dump());
  });
  one("streams the same, with usage", [&] {
    Json body = ask(check);
    body["stream_options"] = {{"include_usage", true}};
    const Streamed stream = streamed(check, body);
    expect_same(text_of(whole), stream.reasoning + stream.content);
    expect(stream.finish == finish_of(whole), finish_of(whole), stream.finish);
    expect_json(stream.usage, kUsage, "the usage at the end");
    const Json::json_pointer made("/usage/completion_tokens");
    expect(stream.usage["completion_tokens"] == whole.at(made), whole.at(made).dump() + " completion_tokens",
           stream.usage.dump());
  });
  one("seed", [&] { check_seed(check); });
  one("n", [&] { check_choices(check); });
  one("stop", [&] { check_stop(check); });
  one("logprobs", [&] { check_logprobs(check); });
  one("JSON schema, whole and streamed", [&] { check_schema(check); });
  one("JSON object", [&] { check_object(check); });
  one("tools: a call, streamed too, and its result", [&] { check_tools(check); });
}

}  // namespace moetier::cli
