// check-api: llama-server's /completion, /tokenize, /detokenize and /apply-template.
#include <fmt/format.h>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/completion";

const Json kEvent = {{"content", "string"}, {"stop", "bool"}, {"tokens_predicted", "int"}, {"tokens_evaluated", "int"}};
const Json kAnswer = {{"content", "string"},
                      {"stop", "bool"},
                      {"id_slot", "int"},
                      {"model", "string"},
                      {"tokens_predicted", "int"},
                      {"tokens_evaluated", "int"},
                      {"tokens_cached", "int"},
                      {"truncated", "bool"},
                      {"generation_settings", "object"},
                      {"prompt", "string"},
                      {"stop_type", "=eos|=word|=limit|=none"},
                      {"stopping_word", "string"},
                      {"timings",
                       {{"prompt_n", "int"},
                        {"prompt_ms", "number"},
                        {"prompt_per_second", "number|null"},
                        {"predicted_n", "int"},
                        {"predicted_ms", "number"},
                        {"predicted_per_second", "number|null"}}}};

Json ask(int64_t tokens = kApiTokens) {
  return {{"prompt", kApiPrompt}, {"n_predict", tokens}, {"temperature", 0}};
}

std::string answered(const ApiCheck& check, const Json& body) {
  return check.answer(kPath, body, kAnswer)["content"].get<std::string>();
}

void check_stream(const ApiCheck& check, const std::string& whole) {
  const auto events = check.stream(kPath, ask());
  std::string text;
  for (const ApiEvent& event : events) {
    expect(!event.json.is_null(), "events of JSON", "[DONE]");
    const bool last = &event == &events.back();
    expect_json(event.json, last ? kAnswer : kEvent, last ? "the last event" : "an event");
    expect(event.json["stop"] == last, fmt::format("stop {}", last), event.json.dump());
    text += event.json["content"].get<std::string>();
  }
  expect_same(whole, text);
}

void check_probabilities(const ApiCheck& check) {
  Json body = ask(4);
  body["n_probs"] = 2;
  const Json answer = check.answer(kPath, body, kAnswer);
  const Json token = {{"id", "int"}, {"token", "string"}, {"bytes", Json::array({"int"})}, {"logprob", "number"}};
  Json shape = token;
  shape["top_logprobs"] = Json::array({token});
  expect_json(answer, {{"completion_probabilities", Json::array({shape})}}, "the answer");
  const Json& probabilities = answer["completion_probabilities"];
  expect(probabilities.size() == answer["tokens_predicted"], answer["tokens_predicted"].dump() + " probabilities",
         std::to_string(probabilities.size()));
  for (const Json& one : probabilities)
    expect(one["top_logprobs"].size() == 2, "2 top_logprobs", std::to_string(one["top_logprobs"].size()));
}

void check_stop(const ApiCheck& check) {
  const std::string text = answered(check, ask(40));
  const std::string stop = stop_in(text), wanted = text.substr(0, text.find(stop));
  Json body = ask(40);
  body["stop"] = Json::array({stop});
  const Json answer = check.answer(kPath, body, kAnswer);
  expect(answer["content"] == wanted, fmt::format("'{}'", wanted), answer["content"].dump());
  expect(answer["stop_type"] == "word" && answer["stopping_word"] == stop, "stop_type word and the stopping_word",
         fmt::format("{} and {}", answer["stop_type"].dump(), answer["stopping_word"].dump()));
}

void check_tokens(ApiCheck& check) {
  const std::string text = "Once upon a time, in 1812, a king said: \"Größe!\"";
  const Json tokens = check.answer("/tokenize", {{"content", text}}, {{"tokens", Json::array({"int"})}})["tokens"];
  expect(!tokens.empty(), "tokens", "none");
  std::string back =
      check.answer("/detokenize", {{"tokens", tokens}}, {{"content", "string"}})["content"].get<std::string>();
  if (back.starts_with(' ')) back.erase(0, 1);  // a vocabulary that begins words with a space
  expect(back == text, fmt::format("'{}'", text), fmt::format("'{}'", back));
  const Json pieces = check.answer("/tokenize", {{"content", text}, {"with_pieces", true}},
                                   {{"tokens", Json::array({{{"id", "int"}, {"piece", "string|array"}}})}})["tokens"];
  expect(pieces.size() == tokens.size(), fmt::format("{} pieces", tokens.size()), std::to_string(pieces.size()));
}

}  // namespace

void check_native(ApiCheck& check) {
  const auto one = [&](const char* name, auto body) {
    return check.check(fmt::format("{}: {}", kPath, name), Need::optional, body);
  };
  std::string whole;
  if (one("answers", [&] { whole = answered(check, ask()); }) == Outcome::absent) return;
  one("streams the same", [&] { check_stream(check, whole); });
  one("seed", [&] {
    Json body = ask();
    body["temperature"] = 1;
    body["seed"] = 7;
    const std::string first = answered(check, body), second = answered(check, body);
    expect(!first.empty() && first == second, fmt::format("the same text of the same seed: '{}'", first), second);
  });
  one("stop", [&] { check_stop(check); });
  one("n_probs", [&] { check_probabilities(check); });
  one("grammar", [&] {
    Json body = ask(check.target().max_tokens);
    body["grammar"] = "root ::= (\"yes\" | \"no\") \"!\"";
    const std::string text = answered(check, body);
    expect(text == "yes!" || text == "no!", "yes! or no!", text);
  });
  one("json_schema", [&] {
    Json body = ask(check.target().max_tokens);
    body["json_schema"] = document_schema();
    expect_document(answered(check, body));
  });
  // Whoever has /completion has these.
  check.check("/tokenize and /detokenize: there and back", Need::required, [&] { check_tokens(check); });
  check.check("/apply-template: holds the message", Need::optional, [&] {
    const Json body = {{"messages", {{{"role", "user"}, {"content", kApiPrompt}}}}};
    const std::string prompt =
        check.answer("/apply-template", body, {{"prompt", "string"}})["prompt"].get<std::string>();
    expect(prompt.find(kApiPrompt) != std::string::npos, fmt::format("'{}' in the prompt", kApiPrompt), prompt);
  });
}

}  // namespace moetier::cli
