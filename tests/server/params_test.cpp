// Fields of requests that change an answer's shape or how it is sampled, in llama-server's names.
#include <gmock/gmock.h>

#include <cmath>

#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

Json once(int n = 8) {
  return {{"prompt", "Once upon a time"}, {"n_predict", n}, {"temperature", 0}};
}
Json with(const std::string& name, const Json& value, Json body = once()) {
  body[name] = value;
  return body;
}
Reply complete(const Json& body) {
  return post(shared().port(), "/completion", body);
}
std::string text_of(const Json& body) {
  const Reply reply = complete(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json.value("content", "");
}

TEST(Params, TimingsInEveryPart) {
  const Json shape = {{"prompt_n", "int"}, {"predicted_n", "int"}, {"predicted_ms", "number"}};
  const auto native = stream(shared().port(), "/completion", with("timings_per_token", true));
  int64_t before = 0;
  for (const SseEvent& event : native) {
    expect_shape(event.json["timings"], shape);
    EXPECT_GE(event.json["timings"]["predicted_n"], before);
    before = event.json["timings"]["predicted_n"];
    EXPECT_TRUE(event.json["id_slot"].is_number_integer());
  }
  EXPECT_EQ(before, 8);
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    Json body = {{"prompt", "Once"}, {"max_tokens", 4}, {"timings_per_token", true}};
    if (std::string(path) == "/v1/chat/completions") body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
    int told = 0;
    for (const SseEvent& event : stream(shared().port(), path, body))
      told += event.json.is_object() && event.json.contains("timings") ? 1 : 0;
    EXPECT_GE(told, 2) << path;
  }
  EXPECT_FALSE(stream(shared().port(), "/completion", once())[0].json.contains("timings"));
}

TEST(Params, SamplersAndTheirOrder) {
  Json body = {{"prompt", "Once upon a time"}, {"n_predict", 20}, {"temperature", 1.5}, {"seed", 3}};
  const std::string greedy = text_of(once(20));
  EXPECT_EQ(text_of(with("top_k", 1, body)), greedy);
  Json only = with("top_k", 1, body);
  only["samplers"] = Json::array({"temperature"});
  EXPECT_NE(text_of(only), greedy);
  only["samplers"] = "t";
  EXPECT_NE(text_of(only), greedy);
  only["samplers"] = "tk";
  const Reply reply = complete(only);
  EXPECT_EQ(reply.json["content"], greedy);
  EXPECT_EQ(reply.json["generation_settings"]["samplers"], Json::array({"temperature", "top_k"}));
  for (const Json& wrong : {Json::array({"top_k", "magic"}), Json("tz"), Json(5), Json::array({"infill"})}) {
    const Reply refused = complete(with("samplers", wrong));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("samplers"));
  }
}

TEST(Params, TheFurtherSamplersWork) {
  Json body = {{"prompt", "Once upon a time"}, {"n_predict", 20}, {"temperature", 0}};
  const std::string greedy = text_of(body);
  EXPECT_NE(text_of(with("xtc_probability", 1, body)), greedy);
  body["temperature"] = 1;
  body["top_n_sigma"] = 0.001;
  EXPECT_EQ(text_of(body), greedy);
  body["top_n_sigma"] = -1;
  const Json on = {{"typical_p", 0.5}, {"dynatemp_range", 0.5}, {"dry_multiplier", 0.8}};
  for (const auto& [name, value] : on.items()) {
    const Reply reply = complete(with(name, value, body));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_NEAR(reply.json["generation_settings"][name].get<double>(), value.get<double>(), 1e-6);
  }
  Json dry = with("dry_multiplier", 0.8, body);
  EXPECT_EQ(complete(with("dry_sequence_breakers", Json::array({"\n"}), dry)).status, 200);
  EXPECT_THAT(complete(with("dry_sequence_breakers", Json::array({"no token holds all of this"}), dry)).body,
              HasSubstr("dry_sequence_breakers[0]"));
  const Json wrong = {{"mirostat", 2}, {"typical_p", 2}, {"xtc_probability", -1}, {"dry_base", 0.5}, {"tfs_z", 0.9}};
  for (const auto& [name, value] : wrong.items()) {
    const Reply reply = complete(with(name, value));
    EXPECT_EQ(reply.status, 400) << name;
    EXPECT_THAT(reply.body, HasSubstr(name));
  }
}

TEST(Params, ProbabilitiesOfTheDraw) {
  Json body = {{"prompt", "Once upon a time"},
               {"n_predict", 3},
               {"temperature", 2},
               {"top_k", 3},
               {"top_p", 1},
               {"min_p", 0},
               {"seed", 4},
               {"n_probs", 5},
               {"post_sampling_probs", true}};
  const Reply reply = complete(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  for (const Json& token : reply.json["completion_probabilities"]) {
    EXPECT_FALSE(token.contains("logprob"));
    ASSERT_EQ(token["top_probs"].size(), 3u);
    double sum = 0;
    bool drawn = false;
    for (const Json& one : token["top_probs"]) {
      sum += one["prob"].get<double>();
      if (one["id"] != token["id"]) continue;
      drawn = true;
      EXPECT_EQ(one["prob"], token["prob"]);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_TRUE(drawn);
  }
  body["temperature"] = 0;
  const Json greedy = complete(body).json["completion_probabilities"][0];
  EXPECT_EQ(greedy["prob"], 1.0);
  EXPECT_EQ(greedy["top_probs"].size(), 1u);
  const Reply elsewhere = post(shared().port(), "/v1/completions", body);
  EXPECT_EQ(elsewhere.status, 400);
  EXPECT_THAT(elsewhere.body, HasSubstr("post_sampling_probs"));
}

TEST(Params, ResponseFieldsChoose) {
  const Json wanted = {"content", "generation_settings/n_predict", "timings/predicted_n", "nothing/here"};
  const Reply reply = complete(with("response_fields", wanted));
  EXPECT_EQ(reply.json, Json({{"content", text_of(once())}, {"n_predict", 8}, {"predicted_n", 8}}));
  EXPECT_EQ(complete(with("response_fields", Json::array({1}))).status, 400);
}

TEST(Params, HowManyTokens) {
  const auto predicted = [](Json body) {
    body.erase("n_predict");
    body.update({{"ignore_eos", true}});
    return body;
  };
  EXPECT_EQ(complete(with("max_tokens", -1)).json["tokens_predicted"], 8);
  Json both = once(8);
  both["max_tokens"] = 3;
  EXPECT_EQ(complete(both).json["tokens_predicted"], 3);
  EXPECT_EQ(complete(with("n_predict", 8.0)).json["tokens_predicted"], 8);
  EXPECT_EQ(complete(with("n_predict", 8.5)).status, 400);
  EXPECT_EQ(complete(with("n_predict", -3)).status, 400);
  Json full = predicted(once());
  full["n_predict"] = -2;
  const Reply reply = complete(full);
  EXPECT_EQ(reply.json["truncated"], true);
  EXPECT_EQ(complete(with("n_cmpl", 2)).json.size(), 2u);
  Json beside = with("n_cmpl", 2);
  beside["n"] = 3;
  EXPECT_EQ(complete(beside).json.size(), 3u);
}

TEST(Params, WhatCannotBeHadIsRefusedByName) {
  EXPECT_EQ(complete(with("lora", Json::array())).status, 200);
  EXPECT_EQ(complete(with("image_data", Json::array())).status, 200);
  EXPECT_THAT(complete(with("lora", Json::array({{{"id", 0}, {"scale", 1}}}))).body, HasSubstr("lora"));
  EXPECT_THAT(complete(with("image_data", Json::array({{{"id", 0}}}))).body, HasSubstr("image_data"));
  EXPECT_EQ(complete(with("temperature", -1)).json["content"], text_of(once()));
}

TEST(Params, AutomaticSeedsSurviveDoubles) {
  for (const Json& seed : {Json(), Json(-1), Json(4294967295u)}) {
    const Json settings = complete(with("seed", seed)).json["generation_settings"];
    EXPECT_LT(settings["seed"].get<uint64_t>(), 4294967295u);
  }
  EXPECT_EQ(complete(with("seed", 40.0)).json["generation_settings"]["seed"], 40);
  EXPECT_EQ(get(shared().port(), "/props").json["default_generation_settings"]["params"]["seed"], 4294967295u);
}

TEST(Params, SlotsTellTheTruth) {
  Json body = once(4);
  body.update(
      {{"ignore_eos", true}, {"stop", {"zzz"}}, {"n_probs", 3}, {"id_slot", 2}, {"grammar", "root ::= [a-z ]*"}});
  stream(shared().port(), "/completion", body);
  const Json slot = get(shared().port(), "/slots").json[2];
  const Json& params = slot["params"];
  EXPECT_EQ(params["ignore_eos"], true);
  EXPECT_EQ(params["stop"], Json::array({"zzz"}));
  EXPECT_EQ(params["n_probs"], 3);
  EXPECT_EQ(params["stream"], true);
  EXPECT_EQ(params["grammar"], "root ::= [a-z ]*");
  EXPECT_EQ(params["max_tokens"], 4);
  EXPECT_EQ(slot["next_token"][0]["n_decoded"], 4);
  EXPECT_EQ(get(shared().port(), "/slots?fail_on_no_slot=1").status, 200);
}

TEST(Params, NoGenerationPromptWhereNoneIsWanted) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  EXPECT_EQ(post(shared().port(), "/apply-template", body).json["prompt"], "<|user|>Hi<|assistant|>");
  body["add_generation_prompt"] = false;
  EXPECT_EQ(post(shared().port(), "/apply-template", body).json["prompt"], "<|user|>Hi");
}

TEST(Params, TokenizeTakesTextsAndIds) {
  const Json ids = post(shared().port(), "/tokenize", {{"content", "Once"}}).json["tokens"];
  Json expected = ids;
  expected.push_back(5);
  EXPECT_EQ(post(shared().port(), "/tokenize", {{"content", Json::array({"Once", 5})}}).json["tokens"], expected);
  EXPECT_EQ(post(shared().port(), "/detokenize", {{"tokens", Json::array({5.0})}}).json,
            post(shared().port(), "/detokenize", {{"tokens", Json::array({5})}}).json);
  EXPECT_EQ(post(shared().port(), "/tokenize", {{"content", Json::array({5.5})}}).status, 400);
  EXPECT_EQ(post(shared().port(), "/tokenize", {{"content", 5}}).status, 400);
}

TEST(Routes, SmallOnes) {
  EXPECT_EQ(get(shared().port(), "/lora-adapters").json, Json::array());
  EXPECT_EQ(get(shared().port(), "/favicon.ico").status, 204);
  EXPECT_EQ(post(shared().port(), "/infill", {{"input_prefix", "a"}}).status, 501);
  const Json input = {{"input", "The king"}};
  EXPECT_EQ(post(shared().port(), "/embeddings", input).json, post(shared().port(), "/v1/embeddings", input).json);
}

TEST(Routes, AWrongMethodIsSaid) {
  const Reply get_only = post(shared().port(), "/props", Json::object());
  EXPECT_EQ(get_only.status, 405);
  EXPECT_EQ(get_only.headers.find("Allow")->second, "GET, HEAD");
  const Reply post_only = get(shared().port(), "/v1/chat/completions");
  EXPECT_EQ(post_only.status, 405);
  EXPECT_EQ(post_only.headers.find("Allow")->second, "POST");
  EXPECT_THAT(post_only.body, HasSubstr("POST"));
  EXPECT_EQ(get(shared().port(), "/v1/messages").json["type"], "error");
  EXPECT_EQ(get(shared().port(), "/v1/nothing").status, 404);
}

}  // namespace
}  // namespace moetier::server
