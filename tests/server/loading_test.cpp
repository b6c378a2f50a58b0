// A server that listens while its model is loaded.
#include <gmock/gmock.h>

#include <thread>

#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ServiceOptions keyed() {
  ServiceOptions service;
  service.keys.add("key");
  return service;
}

HttpOptions any_port() {
  HttpOptions http;
  http.port = 0;
  return http;
}

const Json kLoading = {{"error", {{"code", 503}, {"message", "Loading model"}, {"type", "unavailable_error"}}}};

/// Equal whatever the order of the members.
bool same(const Json& a, const Json& b) {
  return nlohmann::json::parse(a.dump()) == nlohmann::json::parse(b.dump());
}

TEST(Loading, IsSaidAsLlamaServerSaysIt) {
  ApiServer api(ServiceOptions{}, any_port(), 4);
  api.start();
  for (const char* path : {"/health", "/v1/health", "/props", "/slots", "/metrics", "/v1/models", "/nothing"}) {
    const Reply reply = get(api.port(), path);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_TRUE(same(reply.json, kLoading)) << path << ": " << reply.body;
    EXPECT_EQ(reply.headers.count("Retry-After"), 1u);
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/completion", "/tokenize"}) {
    const Reply reply = post(api.port(), path, {{"prompt", "Once"}});
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_TRUE(same(reply.json, kLoading)) << path << ": " << reply.body;
  }
  const Reply anthropic = post(api.port(), "/v1/messages", Json::object());
  EXPECT_EQ(anthropic.status, 503);
  EXPECT_EQ(anthropic.json["type"], "error");
  EXPECT_EQ(anthropic.json["error"]["type"], "overloaded_error");
}

TEST(Loading, ABrowserAsksAgain) {
  ApiServer api(ServiceOptions{}, any_port(), 4);
  api.start();
  for (const char* path : {"/", "/monitor"}) {
    const Reply reply = get(api.port(), path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.body, HasSubstr("http-equiv=\"refresh\""));
  }
}

TEST(Loading, KeysAreAskedForAlready) {
  ApiServer api(keyed(), any_port(), 4);
  api.start();
  EXPECT_EQ(get(api.port(), "/health").status, 503);
  EXPECT_EQ(get(api.port(), "/props").status, 401);
  EXPECT_EQ(get(api.port(), "/props", {{"X-Api-Key", "other"}}).status, 401);
  EXPECT_EQ(get(api.port(), "/props", {{"X-Api-Key", "key"}}).status, 503);
}

TEST(Loading, CanBeGivenUp) {
  auto api = std::make_unique<ApiServer>(ServiceOptions{}, any_port(), 4);
  api->start();
  RawClient client(api->port());
  EXPECT_EQ(get(api->port(), "/health").status, 503);
  api.reset();
  EXPECT_EQ(client.read_all(5), "");
}

TEST(Loading, BecomesReadyUnderWhoAsks) {
  ContextOptions small;
  small.context = 256;
  small.ubatch = 64;
  Context context(shared().engine(), small);
  ServedModel model(shared().engine(), "tale", kTestTemplate);
  SchedulerOptions serving;
  serving.log_requests = false;
  serving.queue = 8;
  ApiServer api(keyed(), any_port(), serving.parallel + serving.queue);
  api.start();
  std::atomic<bool> ended{false};
  std::atomic<int> loading{0}, answered{0}, others{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (!ended) {
        const Reply reply =
            post(api.port(), "/completion", {{"prompt", "Once"}, {"n_predict", 2}}, {{"X-Api-Key", "key"}});
        ++(reply.status == 503 ? loading : reply.status == 200 ? answered : others);
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return loading > 8; }));
  {
    Scheduler scheduler(context, serving);
    api.ready(model, scheduler, Pooling::mean);
    EXPECT_EQ(get(api.port(), "/health").status, 200);
    EXPECT_TRUE(eventually([&] { return answered > 4; }, 60));
    const Reply embedding =
        post(api.port(), "/v1/embeddings", {{"input", "A king"}}, {{"Authorization", "Bearer key"}});
    EXPECT_EQ(embedding.status, 200) << embedding.body;
    ended = true;
    for (std::thread& client : clients) client.join();
    api.stop();
  }
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace moetier::server
