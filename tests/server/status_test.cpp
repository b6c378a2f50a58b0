#include <gmock/gmock.h>

#include "served.h"
#include "server/pages.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

TEST(StatusRoutes, Health) {
  for (const char* path : {"/health", "/v1/health"}) {
    const Reply reply = get(shared().port(), path);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json, Json({{"status", "ok"}}));
  }
}

TEST(StatusRoutes, PropsTellTheModelAndTheDefaults) {
  const Reply reply = get(shared().port(), "/props");
  ASSERT_EQ(reply.status, 200);
  expect_shape(reply.json,
               {{"default_generation_settings",
                 {{"n_ctx", "int"}, {"params", {{"temperature", "number"}, {"top_k", "int"}, {"seed", "int"}}}}},
                {"total_slots", "int"},
                {"model_alias", "=fairytale"},
                {"model_path", "string"},
                {"modalities", {{"vision", "bool"}, {"audio", "bool"}}},
                {"chat_template", "string"},
                {"chat_format", "=hermes"},
                {"bos_token", "string"},
                {"eos_token", "string"},
                {"build_info", "string"},
                {"settings", "object"}});
  EXPECT_EQ(reply.json["total_slots"], 4);
  EXPECT_EQ(reply.json["default_generation_settings"]["n_ctx"], 512);
}

TEST(StatusRoutes, SlotsAreThereAndTellNothingOfPrompts) {
  const Reply before = post(shared().port(), "/completion", {{"prompt", "A raven with a secret"}, {"n_predict", 2}});
  ASSERT_EQ(before.status, 200);
  const Reply reply = get(shared().port(), "/slots");
  ASSERT_EQ(reply.status, 200);
  expect_shape(
      reply.json,
      Json::array(
          {{{"id", "int"},
            {"id_task", "int"},
            {"n_ctx", "int"},
            {"is_processing", "bool"},
            {"state", "=idle|=prompt|=generating|=paused"},
            {"params", "object"},
            {"next_token", Json::array({{{"has_next_token", "bool"}, {"n_remain", "int"}, {"n_decoded", "int"}}})}}}));
  EXPECT_EQ(reply.json.size(), 4u);
  EXPECT_THAT(reply.body, ::testing::Not(HasSubstr("raven")));
}

TEST(StatusRoutes, MetricsArePrometheusText) {
  const Reply reply = get(shared().port(), "/metrics");
  ASSERT_EQ(reply.status, 200);
  const auto type = reply.headers.find("Content-Type");
  ASSERT_NE(type, reply.headers.end());
  EXPECT_THAT(type->second, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(reply.body, HasSubstr("# TYPE moetier:http_connections gauge\n"));
  EXPECT_THAT(reply.body, HasSubstr("llamacpp:requests_processing"));
  EXPECT_EQ(reply.body.back(), '\n');
}

TEST(StatusRoutes, Models) {
  const Json model = {{"id", "=fairytale"},
                      {"object", "=model"},
                      {"created", "int"},
                      {"owned_by", "=moetier"},
                      {"meta",
                       {{"n_ctx", "int"},
                        {"n_ctx_train", "int"},
                        {"n_vocab", "int"},
                        {"vocab_type", "int"},
                        {"n_params", "int"},
                        {"size", "int"}}}};
  const Reply list = get(shared().port(), "/v1/models");
  ASSERT_EQ(list.status, 200);
  expect_shape(list.json, {{"object", "=list"}, {"data", Json::array({model})}});
  EXPECT_EQ(list.json["data"].size(), 1u);
  const Reply one = get(shared().port(), "/v1/models/fairytale");
  ASSERT_EQ(one.status, 200);
  expect_shape(one.json, model);
  const Reply other = get(shared().port(), "/v1/models/gpt-5");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json["error"]["code"], "model_not_found");
}

TEST(TextRoutes, TokensThereAndBack) {
  const std::string text = "Once upon a time there was a \xc3\xa4pfel <|odd|> tree.";
  const Reply tokens = post(shared().port(), "/tokenize", {{"content", text}});
  ASSERT_EQ(tokens.status, 200);
  expect_shape(tokens.json, {{"tokens", Json::array({"int"})}});
  EXPECT_EQ(post(shared().port(), "/detokenize", tokens.json).json, Json({{"content", text}}));
  const Reply with_bos = post(shared().port(), "/tokenize", {{"content", text}, {"add_special", true}});
  EXPECT_EQ(with_bos.json["tokens"].size(), tokens.json["tokens"].size() + 1);
}

TEST(TextRoutes, PiecesOfHalfCharactersAreBytes) {
  const Reply reply = post(shared().port(), "/tokenize", {{"content", "a \xf0\x9f\x8d\x8e"}, {"with_pieces", true}});
  ASSERT_EQ(reply.status, 200);
  std::string joined;
  bool bytes = false;
  for (const Json& token : reply.json["tokens"]) {
    if (token["piece"].is_string()) {
      joined += token["piece"].get<std::string>();
    } else {
      bytes = true;
      for (const Json& byte : token["piece"]) joined += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(joined, "a \xf0\x9f\x8d\x8e");
  EXPECT_TRUE(bytes);
}

TEST(TextRoutes, ApplyTemplate) {
  const Reply reply = post(
      shared().port(), "/apply-template",
      {{"messages",
        {{{"role", "developer"}, {"content", "Be kind."}},
         {{"role", "user"},
          {"content", Json::array({{{"type", "text"}, {"text", "Hi"}}, {{"type", "text"}, {"text", "there"}}})}}}}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json, Json({{"prompt", "<|system|>Be kind.<|user|>Hi\nthere<|assistant|>"}}));
}

TEST(StatusRoutes, WhatIsNotThereIsSaidInEachApisShape) {
  EXPECT_EQ(get(shared().port(), "/v1/nothing").json["error"]["type"], "not_found_error");
  EXPECT_EQ(get(shared().port(), "/nothing").json["error"]["code"], 404);
  const Reply anthropic = get(shared().port(), "/v1/messages/nothing");
  EXPECT_EQ(anthropic.status, 404);
  EXPECT_EQ(anthropic.json["type"], "error");
  EXPECT_EQ(get(shared().port(), "/").status, pages().empty() ? 404 : 200);
}

}  // namespace
}  // namespace moetier::server
