// What a client gets when the time of its request is over: --request-timeout and t_max_predict_ms.
#include <gmock/gmock.h>

#include "served.h"

namespace moetier::server {
namespace {

constexpr int kMany = 400;  // tokens that take longer than any limit here

Json talk() {
  return Json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
}

/// Adds what makes an answer long: no end of its own, and all probabilities to be written.
Json long_one(Json body, const char* count = "max_tokens") {
  body[count] = kMany;
  body["ignore_eos"] = true;
  body["logit_bias"] = no_thoughts();
  body["t_max_predict_ms"] = 20;
  return body;
}

TEST(TimeLimit, OfARequestEndsAnAnswerAsALengthInEachApi) {
  const int port = shared().port();
  const Reply native = post(port, "/completion", long_one({{"prompt", "Once"}, {"n_probs", 100}}, "n_predict"));
  ASSERT_EQ(native.status, 200) << native.body;
  EXPECT_EQ(native.json["stop_type"], "limit");
  EXPECT_EQ(native.json["timed_out"], true);
  EXPECT_LT(native.json["tokens_predicted"], kMany);

  const Reply chat = post(port, "/v1/chat/completions", long_one({{"messages", talk()}}));
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(chat.json["choices"][0]["finish_reason"], "length");
  EXPECT_LT(chat.json["usage"]["completion_tokens"], kMany);

  const Reply text = post(port, "/v1/completions", long_one({{"prompt", "Once"}}));
  ASSERT_EQ(text.status, 200) << text.body;
  EXPECT_EQ(text.json["choices"][0]["finish_reason"], "length");
  EXPECT_LT(text.json["usage"]["completion_tokens"], kMany);

  const Reply response = post(port, "/v1/responses", long_one({{"input", "Once"}}, "max_output_tokens"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.json["status"], "incomplete");
  EXPECT_EQ(response.json["incomplete_details"]["reason"], "max_output_tokens");

  const Reply message = post(port, "/v1/messages", long_one({{"model", "any"}, {"messages", talk()}}));
  ASSERT_EQ(message.status, 200) << message.body;
  EXPECT_EQ(message.json["stop_reason"], "max_tokens");
  EXPECT_LT(message.json["usage"]["output_tokens"], kMany);
}

TEST(TimeLimit, EndsAStreamProperly) {
  const auto events = stream(shared().port(), "/v1/chat/completions", long_one({{"messages", talk()}}));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back().text, "[DONE]");
  EXPECT_EQ(events[events.size() - 2].json["choices"][0]["finish_reason"], "length");
}

TEST(TimeLimit, OfTheServerHoldsForAllAndInTheQueueToo) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 16384;
  options.service.defaults.time_limit = 1;
  Served served(std::move(options));
  // It asks for more time than there is.
  RawClient reader(served.port());
  Json first = {{"prompt", "Once"}, {"n_predict", 16000}, {"ignore_eos", true}, {"stream", true}};
  first["t_max_predict_ms"] = 600000;
  reader.send(raw_post("/completion", first.dump()));
  ASSERT_TRUE(eventually([&] { return served.scheduler().slots().front().busy; }));
  // This one asks for less, and gets no slot before that is over.
  const Reply waited =
      post(served.port(), "/completion", {{"prompt", "Then"}, {"n_predict", 5}, {"t_max_predict_ms", 1}});
  ASSERT_EQ(waited.status, 200) << waited.body;
  EXPECT_EQ(waited.json["timed_out"], true);
  EXPECT_EQ(waited.json["tokens_predicted"], 0);
  const std::string all = reader.read_until("\"timed_out\":", 20) + reader.read_until("}", 20);
  EXPECT_NE(all.find("\"stop\":true"), std::string::npos);
  EXPECT_NE(all.find("\"timed_out\":true"), std::string::npos);
  const Reply after = post(served.port(), "/completion", {{"prompt", "Then"}, {"n_predict", 1}});
  EXPECT_EQ(after.status, 200);
  EXPECT_EQ(after.json["timed_out"], false);
}

}  // namespace
}  // namespace moetier::server
