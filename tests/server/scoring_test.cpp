// Texts that are scored: /v1/completions with echo and logprobs.
#include <gmock/gmock.h>

#include <cmath>

#include "served.h"
#include "server/logprobs.h"

namespace moetier::server {
namespace {

Json score(const Json& prompt, int n = 1) {
  return {{"prompt", prompt}, {"max_tokens", n}, {"logprobs", 2}, {"echo", true}, {"temperature", 0}};
}

/// The same from the engine alone, a token at a time.
std::vector<TokenOut> by_hand(const std::vector<TokenId>& tokens, int n) {
  ContextOptions options;
  options.context = 512;
  Context context(shared().engine(), options);
  SequenceState sequence = context.new_sequence();
  std::vector<TokenOut> out;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const BatchRow row{tokens[i], &sequence, true};
    context.decode(std::span(&row, 1));
    out.push_back(token_with_probs(context.logits(0), tokens[i + 1], n));
  }
  return out;
}

void expect_scores(const Json& logprobs, const std::vector<TokenId>& tokens) {
  const Tokenizer& words = shared().engine().tokenizer();
  ASSERT_EQ(logprobs["tokens"].size(), tokens.size());
  for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"})
    ASSERT_EQ(logprobs[name].size(), tokens.size()) << name;
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  const std::vector<TokenOut> expected = by_hand(tokens, 2);
  for (size_t i = 1; i < tokens.size(); ++i) {
    EXPECT_EQ(logprobs["tokens"][i], words.piece(tokens[i], true));
    EXPECT_EQ(logprobs["token_logprobs"][i].get<float>(), expected[i - 1].logprob) << i;
    for (const TokenProb& top : expected[i - 1].top) {
      EXPECT_EQ(logprobs["top_logprobs"][i][words.piece(top.token, true)].get<float>(), top.logprob) << i;
    }
  }
}

void expect_offsets(const Json& choice) {
  const std::string text = choice["text"];
  const Json& logprobs = choice["logprobs"];
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    const auto at = logprobs["text_offset"][i].get<size_t>();
    std::string piece = logprobs["tokens"][i];
    if (piece == "<|endoftext|>") piece.clear();  // control tokens stand in no text
    EXPECT_EQ(text.substr(at, piece.size()), piece) << i;
  }
}

TEST(Scoring, EveryTokenOfThePromptHasItsLogProbability) {
  const std::string text = "Once upon a time there was a king who had three";
  const std::vector<TokenId> tokens = shared().engine().tokenizer().encode(text);
  for (const int n : {0, 1, 4}) {
    const Reply reply = post(shared().port(), "/v1/completions", score(text, n));
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json& choice = reply.json["choices"][0];
    std::vector<TokenId> all = tokens;
    if (n > 0) {
      const Json more = {{"prompt", text}, {"n_predict", n}, {"temperature", 0}, {"return_tokens", true}};
      const Json generated = post(shared().port(), "/completion", more).json["tokens"];
      for (const Json& id : generated) all.push_back(id);
    }
    ASSERT_EQ(all.size(), tokens.size() + static_cast<size_t>(n));
    expect_scores(choice["logprobs"], all);
    expect_offsets(choice);
    EXPECT_TRUE(choice["text"].get<std::string>().starts_with(text));
    EXPECT_EQ(reply.json["usage"]["completion_tokens"], n);
    EXPECT_EQ(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  }
}

TEST(Scoring, ALongPromptBesideOthersGivesTheSame) {
  // Longer than the rows whose logits are computed at once, with a neighbour that generates.
  std::vector<TokenId> tokens;
  const std::vector<TokenId> part = shared().engine().tokenizer().encode("The old woman said to the wolf that ");
  while (tokens.size() < 300) tokens.insert(tokens.end(), part.begin(), part.end());
  Request talker;
  talker.prompt = part;
  talker.max_tokens = 200;
  talker.ignore_eog = true;
  const auto beside = shared().scheduler().submit(talker);
  const Reply reply = post(shared().port(), "/v1/completions", score(tokens, 0));
  const std::string with_neighbour = beside->wait().text;
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_scores(reply.json["choices"][0]["logprobs"], tokens);
  EXPECT_EQ(shared().scheduler().submit(talker)->wait().text, with_neighbour);
}

TEST(Scoring, AStreamSaysTheSame) {
  Json body = score(Json::array({"Once upon a time", "The king"}), 3);
  body["n"] = 2;
  const Reply whole = post(shared().port(), "/v1/completions", body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  std::vector<std::string> texts(4);
  std::vector<Json> joined(4, Json::object());
  for (const SseEvent& event : stream(shared().port(), "/v1/completions", body)) {
    if (event.text == "[DONE]") continue;
    const Json& choice = event.json["choices"][0];
    const auto index = choice["index"].get<size_t>();
    texts[index] += choice["text"].get<std::string>();
    for (const auto& [name, list] : choice["logprobs"].items()) {
      for (const Json& one : list) joined[index][name].push_back(one);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], whole.json["choices"][i]["text"]);
    EXPECT_EQ(joined[i], whole.json["choices"][i]["logprobs"]);
  }
}

TEST(Scoring, TheTokenThatEndsTheAnswerCounts) {
  // Whoever scores with one token more to generate cuts the last one off.
  const TokenId eos = shared().engine().tokenizer().eos();
  Json body = score("Once upon a time", 1);
  body["logit_bias"] = {{std::to_string(eos), 1000}};
  const Json choice = post(shared().port(), "/v1/completions", body).json["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  const size_t prompt = shared().engine().tokenizer().encode("Once upon a time").size();
  ASSERT_EQ(choice["logprobs"]["tokens"].size(), prompt + 1);
  EXPECT_EQ(choice["logprobs"]["tokens"].back(), shared().engine().tokenizer().piece(eos, true));
}

TEST(Scoring, ProbabilitiesByLlamaServersName) {
  Json body = score("Once upon a time", 1);
  const Json expected = post(shared().port(), "/v1/completions", body).json["choices"][0];
  body.erase("logprobs");
  body["n_probs"] = 2;
  EXPECT_EQ(post(shared().port(), "/v1/completions", body).json["choices"][0], expected);
}

}  // namespace
}  // namespace moetier::server
