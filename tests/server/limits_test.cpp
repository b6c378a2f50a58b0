// What clients must not be able to do to the server: keys, sizes, slowness, hanging up.
#include <gmock/gmock.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "engine/sanitized.h"
#include "served.h"
#include "server/serving.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

double seconds_of(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// The number behind `mark`; fails if there is none.
double number_after(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  EXPECT_NE(at, std::string::npos) << mark;
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + mark.size(), nullptr);
}

TEST(Auth, KeysAreAskedForEverywhereButHealth) {
  ServedOptions options;
  options.service.keys.add("first");
  options.service.keys.add("second");
  Served served(std::move(options));
  const int port = served.port();
  EXPECT_THROW(ApiKeys().add("a%41b"), Error);  // it would come as aAb
  EXPECT_EQ(get(port, "/health").status, 200);
  for (const char* path : {"/v1/models", "/props", "/slots", "/metrics", "/nothing"}) {
    EXPECT_EQ(get(port, path).status, 401) << path;
    EXPECT_EQ(get(port, path, {{"Authorization", "Bearer firs"}}).status, 401) << path;
    EXPECT_EQ(get(port, path, {{"Authorization", "Bearer first1"}}).status, 401) << path;
    EXPECT_NE(get(port, path, {{"Authorization", "bearer first"}}).status, 401) << path;
    EXPECT_NE(get(port, path, {{"X-Api-Key", "second"}}).status, 401) << path;
  }
  const Json body = {{"prompt", "x"}, {"n_predict", 1}};
  EXPECT_EQ(post(port, "/completion", body).status, 401);
  EXPECT_EQ(post(port, "/completion", body, {{"X-Api-Key", "second"}}).status, 200);
  const Reply anthropic = post(port, "/v1/messages", Json::object(), {{"X-Api-Key", "wrong"}});
  EXPECT_EQ(anthropic.status, 401);
  EXPECT_EQ(anthropic.json["error"]["type"], "authentication_error");
  EXPECT_EQ(post(port, "/v1/chat/completions", Json::object()).json["error"]["code"], "invalid_api_key");
}

TEST(Auth, KeyFiles) {
  ApiKeys keys;
  const std::string path = ::testing::TempDir() + "moetier-keys.txt";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("# ours\n\n  alpha \r\nbeta", file);
  std::fclose(file);
  keys.add_file(path);
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_TRUE(keys.accepts("alpha"));
  EXPECT_TRUE(keys.accepts("beta"));
  EXPECT_FALSE(keys.accepts("# ours"));
  EXPECT_FALSE(keys.accepts(""));
  EXPECT_THROW(keys.add(""), Error);
  file = std::fopen(path.c_str(), "w");
  std::fputs("# none\n", file);
  std::fclose(file);
  EXPECT_THROW(keys.add_file(path), Error);
  std::remove(path.c_str());
}

TEST(Cors, IsOffUnlessAsked) {
  const Reply closed = get(shared().port(), "/metrics", {{"Origin", "null"}});
  EXPECT_EQ(closed.headers.count("Access-Control-Allow-Origin"), 0u);
  ServedOptions options;
  options.service.cors_origin = "null";
  Served served(std::move(options));
  for (const char* path : {"/metrics", "/slots", "/props"}) {
    const Reply open = get(served.port(), path, {{"Origin", "null"}});
    EXPECT_EQ(open.headers.find("Access-Control-Allow-Origin")->second, "null") << path;
    EXPECT_EQ(get(served.port(), path, {{"Origin", "http://x"}}).headers.count("Access-Control-Allow-Origin"), 0u);
  }
  EXPECT_EQ(get(served.port(), "/v1/models", {{"Origin", "null"}}).headers.count("Access-Control-Allow-Origin"), 0u);
  httplib::Client client("127.0.0.1", served.port());
  const auto preflight = client.Options("/slots", {{"Origin", "null"}, {"Access-Control-Request-Method", "GET"}});
  ASSERT_TRUE(preflight);
  EXPECT_EQ(preflight->status, 204);
  EXPECT_THAT(preflight->get_header_value("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  const auto other = client.Options("/completion", {{"Origin", "null"}});
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->has_header("Access-Control-Allow-Origin"));
}

ServedOptions small_bodies() {
  ServedOptions options;
  options.http.limits.body_bytes = 4096;
  options.http.limits.header_bytes = 2048;
  options.http.limits.header_seconds = 0.5;
  options.http.limits.body_seconds = 0.5;
  options.http.limits.idle_seconds = 1;
  options.http.limits.connections = 16;
  return options;
}

TEST(Limits, BodiesAreBoundedChunkedOrNot) {
  Served served(small_bodies());
  const std::string large = "{\"prompt\": \"" + std::string(10000, 'a') + "\"}";
  EXPECT_EQ(post_text(served.port(), "/completion", large).status, 413);
  RawClient chunked(served.port());
  chunked.send(
      "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.send("400\r\n" + std::string(1024, 'a') + "\r\n");
  EXPECT_THAT(chunked.read_all(5), HasSubstr(" 413 "));
  // Small chunks within the limit are fine.
  RawClient small(served.port());
  small.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  small.send("a\r\n{\"content\"\r\n9\r\n: \"king\"}\r\n0\r\n\r\n");
  EXPECT_THAT(small.read_until("tokens", 5), HasSubstr("200 OK"));
  EXPECT_EQ(get(served.port(), "/health").status, 200);
}

TEST(Limits, WhatUnpacksToTooMuchIsRefused) {
  Served served(small_bodies());
  const std::string large = "{\"prompt\": \"" + std::string(1 << 20, 'a') + "\"}";
  httplib::Client client("127.0.0.1", served.port());
  client.set_compress(true);
  const auto reply = client.Post("/completion", large, "application/json");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 413);
}

TEST(Limits, HeadersAreBounded) {
  Served served(small_bodies());
  RawClient client(served.port());
  client.send("GET /health HTTP/1.1\r\nX: " + std::string(5000, 'a') + "\r\n\r\n");
  EXPECT_THAT(client.read_all(5), HasSubstr(" 431 "));
}

TEST(Limits, SlowSendersLoseTheirConnections) {
  Served served(small_bodies());
  RawClient head(served.port()), body(served.port()), silent(served.port());
  head.send("GET /health HTTP/1.1\r\nX-Slow:");
  body.send("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(head.read_all(4), "");
  const std::string late = body.read_all(4);
  EXPECT_THAT(late, HasSubstr("HTTP/1.1 408 Request Timeout\r\n"));
  EXPECT_THAT(late, HasSubstr("within 0.5 s (--timeout)"));
  EXPECT_EQ(silent.read_all(4), "");
}

TEST(Limits, ConnectionsAreBoundedAndSaySo) {
  Served served(small_bodies());
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 16; ++i) idle.push_back(std::make_unique<RawClient>(served.port()));
  RawClient one_more(served.port());
  EXPECT_THAT(one_more.read_all(3), HasSubstr("too many connections"));
  idle.clear();
  EXPECT_TRUE(eventually([&] {
    RawClient again(served.port());
    again.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return again.read_all(2).find("200 OK") != std::string::npos;
  }));
}

TEST(Limits, ConnectionsAreKeptAndPipelined) {
  RawClient client(shared().port());
  const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send(request + request + raw_post("/tokenize", "{\"content\": \"king\"}"));
  const std::string replies = client.read_until("tokens", 5);
  size_t count = 0;
  for (size_t at = replies.find("200 OK"); at != std::string::npos; at = replies.find("200 OK", at + 1)) ++count;
  EXPECT_EQ(count, 3u) << replies;
  client.send(request);
  EXPECT_THAT(client.read_until("\"ok\"", 5), HasSubstr("200 OK"));
}

TEST(Limits, HealthAnswersAtOnceBeside64StalledReaders) {
  ServedOptions options;
  options.stream_events = 4;
  options.context = 1024;
  options.service.defaults.ignore_eog = true;
  Served served(std::move(options));
  std::vector<std::unique_ptr<RawClient>> stalled;
  const std::string body =
      Json({{"prompt", "Once upon a time"}, {"n_predict", 900}, {"n_probs", 20}, {"stream", true}}).dump();
  for (int i = 0; i < 64; ++i) {
    stalled.push_back(std::make_unique<RawClient>(served.port(), true));
    stalled.back()->send(raw_post("/completion", body));
  }
  ASSERT_TRUE(eventually(
      [&] { return number_after(get(served.port(), "/metrics").body, "\nmoetier:http_generating ") == 64; }));
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    times.push_back(seconds_of([&] { EXPECT_EQ(get(served.port(), "/health").status, 200); }));
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[4], testing_support::kSanitized ? 1.0 : 0.1);
  for (auto& client : stalled) client->close();
  EXPECT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 0 && served.scheduler().queued() == 0; }, 30));
}

TEST(Limits, HealthAnswersAtOnceBeside300SlowSenders) {
  Served served;
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<RawClient>(served.port()));
    const bool chunked = i % 3 == 0;
    slow.back()->send(std::string("POST /completion HTTP/1.1\r\nHost: x\r\n") +
                      (chunked ? "Transfer-Encoding: chunked\r\n\r\n3e8\r\n{" : "Content-Length: 1000\r\n\r\n{"));
  }
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    times.push_back(seconds_of([&] { EXPECT_EQ(get(served.port(), "/health").status, 200); }));
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[4], testing_support::kSanitized ? 1.0 : 0.1);
  // Each is still answered when it has sent the rest.
  slow[1]->send(std::string(999, ' '));
  EXPECT_THAT(slow[1]->read_until("}", 10), HasSubstr(" 400 "));
}

TEST(Limits, BodiesOnTheirWayAreBoundedTogether) {
  ServedOptions options;
  options.http.limits.body_bytes = size_t{1} << 20;  // 8 MiB together
  Served served(std::move(options));
  const std::string most(900 << 10, 'a');
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 12; ++i) {
    slow.push_back(std::make_unique<RawClient>(served.port()));
    slow.back()->send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + most);
  }
  // The ones that began first give way, and say why; a body that comes at once finds room.
  const std::string first = slow[0]->read_all(10);
  EXPECT_THAT(first, HasSubstr(" 503 "));
  EXPECT_THAT(first, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(first, HasSubstr("hold the 8388608 bytes that they may"));
  const Reply fast = post(served.port(), "/tokenize", {{"content", "king"}, {"x", std::string(800 << 10, 'a')}});
  EXPECT_EQ(fast.status, 200) << fast.body.substr(0, 200);
  EXPECT_EQ(slow[11]->read_until(" ", 0.2), "");
}

TEST(Limits, AsManyOfTheLargestBodiesAsSaidHaveRoom) {
  ServedOptions options;
  options.http.limits.body_bytes = size_t{1} << 20;
  Served served(std::move(options));
  const std::string body(size_t{1} << 20, ' ');
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<RawClient>(served.port()));
    slow.back()->send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + body.substr(1));
  }
  for (auto& client : slow) {
    client->send(" ");
    EXPECT_THAT(client->read_until("}", 10), HasSubstr("not valid JSON"));
  }
}

TEST(Limits, IdleConnectionsDoNotKeepTheirBodiesMemory) {
  if (testing_support::kSanitized) GTEST_SKIP() << "a sanitizer keeps what is freed";
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    size_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  };
  Served served;
  const std::string request = raw_post("/tokenize", "{\"content\": \"x\"" + std::string(8 << 20, ' ') + "}");
  const size_t before = resident();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 24; ++i) {
    idle.push_back(std::make_unique<RawClient>(served.port()));
    idle.back()->send(request);
    EXPECT_THAT(idle.back()->read_until("tokens", 10), HasSubstr("200 OK"));
    if (i % 2 == 0) idle.back()->send("G");  // of the next request
  }
  EXPECT_LT(resident(), before + (size_t{64} << 20));  // 192 MiB were sent
}

TEST(Limits, ManySmallValuesInABodyTakeTheirTimeAndNoMore) {
  std::string body = "{\"content\": \"x\", \"a\": [";
  for (int i = 0; i < 400'000; ++i) body += "{},";
  EXPECT_EQ(post_text(shared().port(), "/tokenize", body + "0]}").status, 200);
  EXPECT_EQ(post_text(shared().port(), "/tokenize", "{\"a\": [" + std::string(5'000'000, ',') + "]}").status, 413);
}

TEST(Limits, MoreChoicesThanSlotsAreAllWhole) {
  ServedOptions options;
  options.parallel = 1;
  options.stall_seconds = 1;
  options.stream_events = 16;
  Served served(std::move(options));
  const Reply reply = post(served.port(), "/completion",
                           {{"prompt", "Once"}, {"n", 8}, {"n_predict", 100}, {"ignore_eos", true}, {"seed", 1}});
  ASSERT_EQ(reply.status, 200);
  ASSERT_EQ(reply.json.size(), 8u) << reply.body.substr(0, 200);
  for (const Json& choice : reply.json) EXPECT_EQ(choice["tokens_predicted"], 100);
}

/// Answers large enough to fill a socket's buffers: 100 likeliest tokens of each position.
Json large_answer(int64_t tokens) {
  return {{"prompt", "Once upon a time"},
          {"n_predict", tokens},
          {"ignore_eos", true},
          {"temperature", 1.0},
          {"seed", 7},
          {"n_probs", 100},
          {"stream", true}};
}

TEST(Limits, ReadersThatStallGiveTheirSlotsAtOnce) {
  ServedOptions options;
  options.parallel = 1;
  options.stream_events = 4;
  options.context = 1024;
  Served served(std::move(options));
  std::vector<std::unique_ptr<RawClient>> stalled;
  const auto aside = [&] { return number_after(get(served.port(), "/metrics").body, "\nmoetier:requests_set_aside "); };
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(std::make_unique<RawClient>(served.port(), true));
    stalled.back()->send(raw_post("/completion", large_answer(1000).dump()));
    ASSERT_TRUE(eventually([&] { return served.scheduler().slots()[0].paused && aside() + 1 > i; }));
  }
  const double seconds = seconds_of([&] {
    EXPECT_EQ(post(served.port(), "/completion", {{"prompt", "The king"}, {"n_predict", 2}}).status, 200);
  });
  EXPECT_LT(seconds, testing_support::kSanitized ? 20 : 5);  // each would have had 30 s
  EXPECT_GE(aside(), 2);
  for (auto& client : stalled) client->close();
  EXPECT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 0 && aside() == 0; }, 30));
}

TEST(Limits, AReaderThatStallsForLongLosesItsAnswer) {
  ServedOptions options;
  options.parallel = 1;
  options.stream_events = 4;
  options.stall_seconds = 0.5;
  options.context = 1024;
  options.http.limits.write_seconds = 1;
  Served served(std::move(options));
  RawClient client(served.port(), true);
  client.send(raw_post("/completion", large_answer(1000).dump()));
  EXPECT_TRUE(eventually([&] {
    const std::string metrics = get(served.port(), "/metrics").body;
    return metrics.find("moetier:requests_total{finish=\"stalled\"} 1") != std::string::npos;
  }));
  EXPECT_EQ(served.scheduler().busy_slots(), 0);
}

TEST(Limits, AReaderThatTakesNothingIsStalledAndNotGone) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 1024;
  options.http.limits.write_seconds = 0.5;
  Served served(std::move(options));
  RawClient client(served.port(), true);
  client.send(raw_post("/completion", large_answer(1000).dump()));
  EXPECT_TRUE(eventually([&] {
    return number_after(get(served.port(), "/metrics").body, "\nmoetier:requests_total{finish=\"stalled\"} ") == 1;
  }));
}

TEST(Limits, MoreThanTheQueueHoldsIs429WithRetryAfter) {
  ServedOptions options;
  options.parallel = 1;
  options.queue = 1;
  Served served(std::move(options));
  const std::string body =
      Json({{"prompt", "Once"}, {"n_predict", 480}, {"ignore_eos", true}, {"stream", true}}).dump();
  RawClient first(served.port()), second(served.port());
  first.send(raw_post("/completion", body));
  ASSERT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 1; }));
  second.send(raw_post("/completion", body));
  ASSERT_TRUE(eventually([&] { return served.scheduler().queued() == 1; }));
  const Reply third =
      post(served.port(), "/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}}});
  EXPECT_EQ(third.status, 429) << third.body;
  EXPECT_EQ(third.json["error"]["type"], "rate_limit_error");
  EXPECT_EQ(third.headers.count("Retry-After"), 1u);
}

TEST(Disconnect, EndsWhatIsGenerated) {
  for (const bool streamed : {true, false}) {
    ServedOptions options;
    options.parallel = 1;
    options.context = 8192;
    Served served(std::move(options));
    RawClient client(served.port());
    client.send(raw_post(
        "/completion",
        Json({{"prompt", "Once"}, {"n_predict", 8000}, {"ignore_eos", true}, {"n_probs", 50}, {"stream", streamed}})
            .dump()));
    ASSERT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 0; }));
    // Ended by the client's going, not by the last token.
    EXPECT_LT(number_after(get(served.port(), "/metrics").body, "\nllamacpp:tokens_predicted_total "), 7000)
        << streamed;
  }
}

/// About 730 tokens, so many times.
std::string long_text(int times = 1) {
  std::string text;
  for (int i = 0; i < 80 * times; ++i) text += "the king of the castle went to the sea ";
  return text;
}

TEST(Embeddings, WaitForThePagesThatGenerationsHold) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 1024;
  Served served(std::move(options));
  std::atomic<bool> over{false};
  std::thread generating([&] {
    while (!over)
      post(served.port(), "/completion", {{"prompt", "Once upon 0"}, {"n_predict", 900}, {"ignore_eos", true}});
  });
  for (int i = 0; i < 4; ++i) {
    const Reply reply = post(served.port(), "/v1/embeddings", {{"input", Json::array({long_text()})}});
    EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  }
  over = true;
  generating.join();
}

TEST(Disconnect, EndsEmbeddingsThatWait) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 8192;
  options.stream_events = 10000;
  Served served(std::move(options));
  Request long_one;
  long_one.prompt = served.model().tokenizer().encode(long_text(9));
  long_one.max_tokens = 900;
  long_one.ignore_eog = true;
  long_one.constraint = std::make_shared<testing_support::SlowConstraint>(std::chrono::milliseconds(20));
  const auto at_work = served.scheduler().submit(std::move(long_one));
  ASSERT_TRUE(eventually([&] { return served.scheduler().slots()[0].held_tokens > 6000; },
                         testing_support::kSanitized ? 200 : 30));
  RawClient client(served.port());
  client.send(raw_post("/v1/embeddings", Json({{"input", long_text(3)}}).dump()));
  const auto inside = [&] { return number_after(get(served.port(), "/metrics").body, "\nmoetier:http_generating "); };
  ASSERT_TRUE(eventually([&] { return inside() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return inside() == 0; }));
  EXPECT_EQ(served.scheduler().busy_slots(), 1);
}

TEST(Disconnect, EndsWhatWaits) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 1024;
  Served served(std::move(options));
  const std::string body =
      Json({{"prompt", "Once"}, {"n_predict", 1000}, {"ignore_eos", true}, {"n_probs", 50}, {"stream", true}}).dump();
  RawClient first(served.port()), second(served.port());
  first.send(raw_post("/completion", body));
  ASSERT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 1; }));
  second.send(raw_post("/completion", body));
  ASSERT_TRUE(eventually([&] { return served.scheduler().queued() == 1; }));
  second.close();
  EXPECT_TRUE(eventually([&] { return served.scheduler().queued() == 0; }));
}

TEST(KeepAlive, SilenceIsFilled) {
  ServedOptions options;
  options.parallel = 1;
  options.service.keep_alive_seconds = 0.1;
  Served served(std::move(options));
  RawClient first(served.port()), second(served.port());
  const std::string body =
      Json({{"prompt", "Once"}, {"n_predict", 500}, {"ignore_eos", true}, {"n_probs", 100}, {"stream", true}}).dump();
  first.send(raw_post("/completion", body));
  ASSERT_TRUE(eventually([&] { return served.scheduler().busy_slots() == 1; }));
  second.send(raw_post("/completion", body));
  EXPECT_THAT(second.read_until(": keep-alive", 10), HasSubstr(": keep-alive\n\n"));
}

TEST(Drain, RequestsThatAreNotWholeAreToldSo) {
  Served served;
  RawClient half(served.port());
  half.send("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
  ASSERT_EQ(get(served.port(), "/health").status, 200);
  EXPECT_TRUE(served.api().drain(20));
  EXPECT_THAT(half.read_all(5), HasSubstr("the server is stopping"));
}

TEST(Drain, LetsRequestsEndAndTakesNoMore) {
  ServedOptions options;
  options.parallel = 1;
  auto served = std::make_unique<Served>(std::move(options));
  std::string text;
  RawClient client(served->port());
  client.send(raw_post("/completion",
                       Json({{"prompt", "Once"}, {"n_predict", 200}, {"ignore_eos", true}, {"stream", true}}).dump()));
  ASSERT_TRUE(eventually([&] { return served->scheduler().busy_slots() == 1; }));
  EXPECT_TRUE(served->api().drain(20));
  EXPECT_THAT(client.read_all(5), HasSubstr("\"stop\":true"));
  RawClient late(served->port());
  late.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(late.read_all(3), ::testing::Not(HasSubstr("200 OK")));
}

}  // namespace
}  // namespace moetier::server
