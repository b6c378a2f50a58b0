// /completion, and what all APIs do with its fields.
#include <gmock/gmock.h>

#include "served.h"

namespace moetier::server {
namespace {

const Json kShape = {{"index", "int"},
                     {"content", "string"},
                     {"tokens", Json::array({"int"})},
                     {"id_slot", "int"},
                     {"stop", "bool"},
                     {"model", "=fairytale"},
                     {"tokens_predicted", "int"},
                     {"tokens_evaluated", "int"},
                     {"generation_settings", "object"},
                     {"prompt", "string"},
                     {"has_new_line", "bool"},
                     {"truncated", "bool"},
                     {"stop_type", "=eos|=word|=limit"},
                     {"stopping_word", "string"},
                     {"tokens_cached", "int"},
                     {"timings",
                      {{"prompt_n", "int"},
                       {"prompt_ms", "number"},
                       {"prompt_per_second", "number"},
                       {"predicted_n", "int"},
                       {"predicted_ms", "number"},
                       {"predicted_per_second", "number"}}}};

Json once(int n = 20) {
  return {{"prompt", "Once upon a time"}, {"n_predict", n}, {"temperature", 0}};
}

TEST(Completion, IsTheEnginesText) {
  const Reply reply = post(shared().port(), "/completion", once());
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(reply.json, kShape);
  EXPECT_EQ(reply.json["stop_type"], "limit");
  EXPECT_EQ(reply.json["tokens_predicted"], 20);
  // The same by hand.
  ContextOptions options;
  options.context = 128;
  Context context(shared().engine(), options);
  SequenceState sequence = context.new_sequence();
  std::vector<TokenId> held;
  GenerateOptions generation;
  generation.max_tokens = 20;
  generation.sampler.temperature = 0;
  const auto prompt = shared().engine().tokenizer().encode("Once upon a time");
  EXPECT_EQ(reply.json["content"], generate(context, sequence, held, prompt, generation).text);
}

TEST(Completion, StreamsTheSameText) {
  const Reply whole = post(shared().port(), "/completion", once());
  const auto events = stream(shared().port(), "/completion", once());
  ASSERT_GE(events.size(), 2u);
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_EQ(events[i].json["stop"], false);
    text += events[i].json["content"].get<std::string>();
  }
  EXPECT_EQ(text, whole.json["content"]);
  expect_shape(events.back().json, kShape);
  EXPECT_EQ(events.back().json["stop"], true);
  EXPECT_EQ(events.back().json["content"], "");
}

TEST(Completion, TakesTokensTextsAndBoth) {
  const Json tokens =
      post(shared().port(), "/tokenize", {{"content", "Once upon a time"}, {"add_special", true}}).json["tokens"];
  Json by_ids = once(), mixed = once();
  by_ids["prompt"] = tokens;
  const Json expected = post(shared().port(), "/completion", once()).json["content"];
  EXPECT_EQ(post(shared().port(), "/completion", by_ids).json["content"], expected);
  mixed["prompt"] = Json::array({tokens[0], "x"});
  const Reply both = post(shared().port(), "/completion", mixed);
  EXPECT_EQ(both.status, 200) << both.body;
  EXPECT_EQ(both.json["tokens_evaluated"], 2);
}

TEST(Completion, SeveralPrompts) {
  Json body = once(5);
  body["prompt"] = Json::array({"Once upon a time", "The king"});
  const Reply reply = post(shared().port(), "/completion", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  ASSERT_EQ(reply.json.size(), 2u);
  EXPECT_EQ(reply.json[0]["content"], post(shared().port(), "/completion", once(5)).json["content"]);
  EXPECT_EQ(reply.json[1]["index"], 1);
}

TEST(Completion, SeedsDecide) {
  Json body = {{"prompt", "The king"}, {"n_predict", 30}, {"temperature", 1.5}, {"seed", 7}};
  const Json first = post(shared().port(), "/completion", body).json["content"];
  EXPECT_EQ(post(shared().port(), "/completion", body).json["content"], first);
  body["seed"] = 8;
  EXPECT_NE(post(shared().port(), "/completion", body).json["content"], first);
}

TEST(Completion, StopsAtATextThatIsNotSent) {
  const std::string whole = post(shared().port(), "/completion", once(40)).json["content"];
  const std::string stop = whole.substr(20, 6);
  Json body = once(40);
  body["stop"] = Json::array({stop});
  const Reply reply = post(shared().port(), "/completion", body);
  EXPECT_EQ(reply.json["content"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(reply.json["stop_type"], "word");
  EXPECT_EQ(reply.json["stopping_word"], stop);
}

TEST(Completion, BiasForbidsAndForces) {
  Json likeliest = once(1);
  likeliest["return_tokens"] = true;
  const Json id = post(shared().port(), "/completion", likeliest).json["tokens"][0];
  Json forbidden = once(1), forced = once(3);
  forbidden["return_tokens"] = forced["return_tokens"] = true;
  forbidden["logit_bias"] = Json::array({Json::array({id, false})});
  EXPECT_NE(post(shared().port(), "/completion", forbidden).json["tokens"][0], id);
  forced["logit_bias"] = {{"100", 1000}};
  EXPECT_EQ(post(shared().port(), "/completion", forced).json["tokens"], Json::array({100, 100, 100}));
}

TEST(Completion, ABiasThatBansEveryTokenIs400) {
  Json body = once(3);
  for (TokenId id = 0; id < shared().engine().model().hparams().vocab; ++id)
    body["logit_bias"].push_back(Json::array({id, false}));
  const Reply reply = post(shared().port(), "/completion", body);
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_THAT(reply.body, ::testing::HasSubstr("ban all"));
}

TEST(Completion, ProbabilitiesOfTheLikeliest) {
  Json body = once(4);
  body["n_probs"] = 3;
  const Reply reply = post(shared().port(), "/completion", body);
  const Json token = {{"id", "int"}, {"token", "string"}, {"bytes", Json::array({"int"})}, {"logprob", "number"}};
  Json shape = token;
  shape["top_logprobs"] = Json::array({token});
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(reply.json["completion_probabilities"], Json::array({shape}));
  ASSERT_EQ(reply.json["completion_probabilities"].size(), 4u);
  for (const Json& one : reply.json["completion_probabilities"]) {
    ASSERT_EQ(one["top_logprobs"].size(), 3u);
    EXPECT_EQ(one["top_logprobs"][0]["id"], one["id"]);  // greedy takes the likeliest
    EXPECT_LE(one["logprob"].get<double>(), 0.0);
    EXPECT_GE(one["top_logprobs"][0]["logprob"], one["top_logprobs"][1]["logprob"]);
  }
}

TEST(Completion, GrammarsAndSchemasHold) {
  Json body = {{"prompt", "Answer:"},
               {"n_predict", 60},
               {"temperature", 1},
               {"seed", 3},
               {"grammar", "root ::= (\"yes\" | \"no\") \"!\""}};
  const std::string word = post(shared().port(), "/completion", body).json["content"];
  EXPECT_TRUE(word == "yes!" || word == "no!") << word;
  body.erase("grammar");
  body["n_predict"] = 200;
  body["json_schema"] = {
      {"type", "object"},
      {"properties",
       {{"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}}, {"wise", {{"type", "boolean"}}}}},
      {"required", {"age", "wise"}}};
  const Reply reply = post(shared().port(), "/completion", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  expect_shape(Json::parse(reply.json["content"].get<std::string>()), {{"age", "int"}, {"wise", "bool"}});
}

TEST(Completion, WrongFieldsAreNamed) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"n_predict", 3}}, "prompt"},
      {{{"prompt", 5}}, "prompt"},
      {{{"prompt", Json::array({1, true})}}, "prompt[1]"},
      {{{"prompt", Json::array({999999})}}, "prompt[0]"},
      {{{"prompt", "x"}, {"temperature", "hot"}}, "temperature"},
      {{{"prompt", "x"}, {"temperature", -101}}, "temperature"},
      {{{"prompt", "x"}, {"top_p", 1.5}}, "top_p"},
      {{{"prompt", "x"}, {"top_k", 2.5}}, "top_k"},
      {{{"prompt", "x"}, {"n_predict", "many"}}, "n_predict"},
      {{{"prompt", "x"}, {"seed", "lucky"}}, "seed"},
      {{{"prompt", "x"}, {"stream", 1}}, "stream"},
      {{{"prompt", "x"}, {"stop", Json::array({1})}}, "stop[0]"},
      {{{"prompt", "x"}, {"stop", ""}}, "stop"},
      {{{"prompt", "x"}, {"logit_bias", {{"1", "much"}}}}, "logit_bias"},
      {{{"prompt", "x"}, {"logit_bias", Json::array({Json::array({99999, 1})})}}, "logit_bias"},
      {{{"prompt", "x"}, {"n_probs", 1000}}, "n_probs"},
      {{{"prompt", "x"}, {"json_schema", "yes"}}, "json_schema"},
      {{{"prompt", "x"}, {"mirostat", 2}}, "mirostat"},
      {{{"prompt", "x"}, {"grammar", "root ::= \"a\""}, {"json_schema", Json::object()}}, "grammar"},
  };
  for (const auto& [body, field] : cases) {
    const Reply reply = post(shared().port(), "/completion", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    EXPECT_EQ(reply.json["error"]["param"], field) << reply.body;
    EXPECT_EQ(reply.json["error"]["type"], "invalid_request_error");
    EXPECT_THAT(reply.json["error"]["message"].get<std::string>(), ::testing::HasSubstr(field));
  }
}

TEST(Completion, WrongBodiesAreRefused) {
  for (const std::string body : {"", "{", "[]", "null", "3", "\"x\"", "{\"prompt\": \"\\ud800\"}",
                                 "{\"prompt\": 1e999}", "{\"a\": NaN}", "\xff\xfe"}) {
    const Reply reply = post_text(shared().port(), "/completion", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(reply.json["error"]["code"], 400) << reply.body;
  }
  const Reply deep =
      post_text(shared().port(), "/completion", "{\"prompt\":" + std::string(5000, '[') + std::string(5000, ']') + "}");
  EXPECT_EQ(deep.status, 400);
  const Reply grammar = post(shared().port(), "/completion", {{"prompt", "x"}, {"grammar", "root ::= nothing"}});
  EXPECT_EQ(grammar.status, 400) << grammar.body;
}

TEST(Completion, AContextThatIsTooSmallIsSaid) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "king ";
  const Reply reply = post(shared().port(), "/completion", {{"prompt", text}, {"n_predict", 1}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json["error"]["type"], "exceed_context_size_error");
  EXPECT_EQ(reply.json["error"]["n_ctx"], 512);
  EXPECT_GT(reply.json["error"]["n_prompt_tokens"], 512);
  const Reply chat =
      post(shared().port(), "/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", text}}}}});
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(chat.json["error"]["code"], "context_length_exceeded");
}

}  // namespace
}  // namespace moetier::server
