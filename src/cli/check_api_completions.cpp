// check-api: /v1/completions.
#include <fmt/format.h>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/completions";

const Json kChoice = {
    {"text", "string"}, {"index", "int"}, {"logprobs?", "object|null"}, {"finish_reason", "=stop|=length"}};
const Json kAnswer = {{"id", "string"},
                      {"object", "=text_completion"},
                      {"created", "int"},
                      {"model", "string"},
                      {"choices", Json::array({kChoice})},
                      {"usage", {{"prompt_tokens", "int"}, {"completion_tokens", "int"}, {"total_tokens", "int"}}}};

Json chunk_shape() {
  Json chunk = kAnswer;
  chunk.erase("usage");
  chunk["choices"][0]["finish_reason"] = "=stop|=length|null";
  return chunk;
}

Json ask(const ApiCheck& check, int64_t tokens = kApiTokens) {
  return {{"model", check.model}, {"prompt", kApiPrompt}, {"max_tokens", tokens}, {"temperature", 0}};
}

Json answered(const ApiCheck& check, const Json& body, size_t choices = 1) {
  Json answer = check.answer(kPath, body, kAnswer);
  const size_t got = answer["choices"].size();
  expect(got == choices, fmt::format("{} choices", choices), std::to_string(got));
  for (size_t i = 0; i < got; ++i)
    expect(answer["choices"][i]["index"] == i, "choices numbered from 0", answer["choices"].dump());
  return answer;
}

std::string text_of(const Json& answer, size_t choice = 0) {
  return text_at(answer, fmt::format("/choices/{}/text", choice));
}

std::string streamed(const ApiCheck& check, const Json& body) {
  static const Json shape = chunk_shape();
  std::string text;
  bool finished = false;
  const auto events = check.stream(kPath, body);
  for (const ApiEvent& event : events) {
    if (event.json.is_null()) continue;
    expect_json(event.json, shape, "an event");
    text += text_of(event.json);
    finished = finished || !text_at(event.json, "/choices/0/finish_reason").empty();
  }
  expect(events.back().json.is_null(), "[DONE] at the end", events.back().json.dump());
  expect(finished, "a finish_reason", "none");
  return text;
}

void check_logprobs(const ApiCheck& check) {
  Json body = ask(check, 4);
  body["logprobs"] = 2;
  const Json answer = answered(check, body);
  const Json logprobs = answer["choices"][0].value("logprobs", Json());
  expect_json(logprobs,
              {{"tokens", Json::array({"string"})},
               {"token_logprobs", Json::array({"number|null"})},
               {"top_logprobs", Json::array({"object|null"})},
               {"text_offset", Json::array({"int"})}},
              "logprobs");
  const size_t tokens = logprobs["tokens"].size();
  expect(tokens > 0, "logprobs of every token", "none");
  for (const char* list : {"token_logprobs", "top_logprobs", "text_offset"})
    expect(logprobs[list].size() == tokens, fmt::format("{} {}", tokens, list), std::to_string(logprobs[list].size()));
}

/// As evaluation harnesses score a text: the prompt's tokens and one more.
void check_scores(const ApiCheck& check) {
  Json body = ask(check, 1);
  body["echo"] = true;
  body["logprobs"] = 1;
  const ApiReply reply = check.post(kPath, body);
  if (reply.status == 400) throw NotThere("echo is not there");
  const Json answer = answered(check, body);
  const Json logprobs = answer["choices"][0].value("logprobs", Json());
  expect_json(logprobs, {{"tokens", Json::array({"string"})}, {"token_logprobs", Json::array({"number|null"})}},
              "logprobs");
  const auto prompt = answer["usage"].value("prompt_tokens", size_t{0});
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    expect(logprobs[list].size() == prompt + 1, fmt::format("{} {}", prompt + 1, list),
           std::to_string(logprobs[list].size()));
  }
  expect(logprobs["token_logprobs"][0].is_null(), "null for the first token", logprobs["token_logprobs"][0].dump());
  const std::string text = text_of(answer);
  expect(text.starts_with(kApiPrompt), fmt::format("a text that begins with '{}'", kApiPrompt), text);
}

void check_stop(const ApiCheck& check) {
  Json body = ask(check, 40);
  const std::string text = text_of(answered(check, body));
  const std::string stop = stop_in(text), wanted = text.substr(0, text.find(stop));
  body["stop"] = stop;
  const Json answer = answered(check, body);
  expect(text_of(answer) == wanted, fmt::format("'{}'", wanted), fmt::format("'{}'", text_of(answer)));
  const std::string finish = text_at(answer, "/choices/0/finish_reason");
  expect(finish == "stop", "finish_reason stop", finish);
}

}  // namespace

void check_completions(ApiCheck& check) {
  const auto one = [&](const char* name, auto body) {
    return check.check(fmt::format("{}: {}", kPath, name), Need::optional, body);
  };
  std::string whole;
  if (one("answers", [&] { whole = text_of(answered(check, ask(check))); }) == Outcome::absent) return;
  one("streams the same", [&] { expect_same(whole, streamed(check, ask(check))); });
  one("several prompts", [&] {
    Json body = ask(check);
    body["prompt"] = Json::array({"The king", kApiPrompt});
    const std::string text = text_of(answered(check, body, 2), 1);
    expect(text == whole, fmt::format("the second's text as alone: '{}'", whole), text);
  });
  one("n", [&] {
    Json body = ask(check);
    body["n"] = 2;
    body["temperature"] = 1;
    answered(check, body, 2);
  });
  one("seed", [&] {
    Json body = ask(check);
    body["temperature"] = 1;
    body["seed"] = 7;
    const std::string first = text_of(answered(check, body)), second = text_of(answered(check, body));
    expect(!first.empty() && first == second, fmt::format("the same text of the same seed: '{}'", first), second);
  });
  one("stop", [&] { check_stop(check); });
  one("logprobs", [&] { check_logprobs(check); });
  one("scores a text", [&] { check_scores(check); });
}

}  // namespace moetier::cli
