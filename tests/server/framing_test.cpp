// Requests whose end could be read in two ways, heads that are refused, and clients that close one side.
#include <gmock/gmock.h>

#include <chrono>

#include "served.h"
#include "server/http/request_body.h"
#include "server/http/request_head.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

int fault_of(const std::string& headers, const std::string& first = "POST /completion HTTP/1.1") {
  const RequestHead head = read_head(first + "\r\n" + headers + "\r\n", 4096);
  return head.fault ? head.fault->status : 0;
}

TEST(RequestHead, SaysWhetherABodyFollows) {
  const RequestHead head = read_head("POST /v1/messages?x=1 HTTP/1.1\r\nHost: x\r\ncontent-length:  12 \r\n\r\n", 4096);
  EXPECT_FALSE(head.fault);
  EXPECT_TRUE(head.has_body());
  EXPECT_EQ(head.length, 12u);
  EXPECT_FALSE(head.asks_to_go_on);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.target, "/v1/messages?x=1");
  EXPECT_TRUE(read_head("GET / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", 1).has_body());
  EXPECT_FALSE(read_head("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 1).has_body());
  EXPECT_FALSE(read_head("GET / HTTP/1.1\r\n\r\n", 1).has_body());
  EXPECT_TRUE(read_head("POST / HTTP/1.1\r\nExpect: 100-Continue\r\n\r\n", 1).asks_to_go_on);
}

using State = BodyScan::State;

BodyScan chunked(size_t most = 100) {
  RequestHead head;
  head.chunked = true;
  return {head, most};
}

TEST(BodyScan, FindsTheEndHoweverTheBodyIsCut) {
  RequestHead counted;
  counted.length = 5;
  const std::vector<std::pair<BodyScan, std::string>> bodies = {
      {BodyScan(), ""},
      {BodyScan(counted, 100), "12345"},
      {chunked(), "0\r\n\r\n"},
      {chunked(), "5\r\nhello\r\n0\r\n\r\n"},
      {chunked(), "00A ;name=\"v\"\r\n0123456789\r\n1;x\r\n\n\r\n000\r\n\r\n"},
      {chunked(16), "8\r\n\r\n0\r\n\r\nX\r\n8\r\n01234567\r\n0\r\n\r\n"},
  };
  for (const auto& [fresh, body] : bodies) {
    BodyScan whole = fresh;
    EXPECT_EQ(whole.look(body + "GET / HTTP/1.1"), State::whole) << body;
    EXPECT_EQ(whole.look(body), State::whole) << body;
    EXPECT_EQ(whole.size(), body.size()) << body;
    BodyScan slow = fresh;
    for (size_t n = 0; n < body.size(); ++n)
      EXPECT_EQ(slow.look(std::string_view(body).substr(0, n)), State::incomplete) << n << " of " << body;
    EXPECT_EQ(slow.look(body), State::whole) << body;
    EXPECT_EQ(slow.size(), body.size()) << body;
  }
}

TEST(BodyScan, RefusesWhatIsNoChunkedBody) {
  for (const char* body : {"x", "\r\n", "-1\r\n", "0x5\r\n", "5 5\r\n", " 5\r\n", "5\nhello", "5;\tx\r\n",
                           "5\r\nhello!", "5\r\nhello\n0", "0\r\nX: trailer\r\n\r\n"}) {
    EXPECT_EQ(chunked().look(std::string(body) + "\r\n\r\n"), State::malformed) << body;
  }
  EXPECT_EQ(chunked().look(std::string(300, '0')), State::malformed);
}

TEST(BodyScan, RefusesWhatIsTooLarge) {
  EXPECT_EQ(chunked(4).look("5\r\n"), State::too_large);
  EXPECT_EQ(chunked(4).look("4\r\nabcd\r\n1\r\n"), State::too_large);
  EXPECT_EQ(chunked().look("ffffffffffffffffffff\r\n"), State::too_large);
  // Hardly any content, all framing.
  std::string framing;
  while (framing.size() < 200'000) framing += "1;" + std::string(200, 'x') + "\r\na\r\n";
  EXPECT_EQ(chunked(50'000).look(framing), State::too_large);
}

TEST(RequestHead, RefusesWhatHasTwoReadings) {
  EXPECT_EQ(fault_of("Content-Length: 5\r\nContent-Length: 5\r\n"), 0);  // the same twice is one
  EXPECT_EQ(fault_of("Content-Length: 4096\r\n"), 0);
  for (const char* headers :
       {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: abc\r\n", "Content-Length:\r\n",
        "Content-Length: -1\r\n", "Content-Length: +5\r\n", "Content-Length: 5, 5\r\n", "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length : 5\r\n", "Content-Length\r\n",
        "X: a\r\n Content-Length: 5\r\n", "X: a\nContent-Length: 5\r\n", "X: a\rContent-Length: 5\r\n", ": x\r\n"}) {
    EXPECT_EQ(fault_of(headers), 400) << headers;
  }
  EXPECT_EQ(fault_of(std::string("X: a\0b\r\n", 8)), 400);
  EXPECT_EQ(fault_of("", "GET /\n HTTP/1.1"), 400);
  EXPECT_EQ(fault_of("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"), 400);
  EXPECT_EQ(fault_of("Transfer-Encoding: gzip, chunked\r\n"), 501);
  EXPECT_EQ(fault_of("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501);
}

TEST(RequestHead, RefusesWhatIsTooLarge) {
  EXPECT_EQ(fault_of("Content-Length: 4097\r\n"), 413);
  EXPECT_EQ(fault_of("Content-Length: 99999999999999999999999999\r\n"), 413);
  EXPECT_EQ(fault_of("", "GET /" + std::string(9000, 'a') + " HTTP/1.1"), 414);
  EXPECT_EQ(fault_of("X: " + std::string(9000, 'a') + "\r\n"), 431);
}

/// Bodies may take their time here, so that what is refused at once shows.
Served& patient() {
  static Served served([] {
    ServedOptions options;
    options.http.limits.body_seconds = 60;
    return options;
  }());
  return served;
}

std::string ask(const std::string& text, double seconds = 10) {
  RawClient client(patient().port());
  client.send(text);
  return client.read_all(seconds);
}

TEST(Framing, AmbiguousRequestsAre400AndTheConnectionEnds) {
  const std::string behind = "GET /props HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string size = std::to_string(behind.size());
  for (const std::string& headers :
       {std::string("Content-Length: abc\r\n"), "Content-Length: 0\r\nContent-Length: " + size + "\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: " + size + "\r\n", std::string("Content-Length: -1\r\n")}) {
    const std::string reply = ask("POST /tokenize HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + behind);
    EXPECT_THAT(reply, HasSubstr("HTTP/1.1 400 Bad Request")) << headers;
    EXPECT_EQ(count_of(reply, "HTTP/1.1 "), 1u) << headers << reply;
  }
  const std::string anthropic = ask("POST /v1/messages HTTP/1.1\r\nContent-Length: abc\r\n\r\n");
  EXPECT_THAT(anthropic, HasSubstr(R"({"type":"error","error":{"type":"invalid_request_error")"));
}

TEST(Framing, ABodyThatNobodyReadsIsNoRequest) {
  const std::string behind = "GET /props HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string with =
      " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(behind.size()) + "\r\n\r\n" + behind;
  const std::string last = "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  for (const char* first : {"GET /health", "OPTIONS /health", "GET /nothing", "POST /nothing"}) {
    const std::string reply = ask(first + with + last);
    EXPECT_EQ(count_of(reply, "HTTP/1.1 "), 2u) << first << reply;
    EXPECT_THAT(reply, HasSubstr("\"owned_by\"")) << first;
  }
}

TEST(Framing, WhatIsNoHttpIsToldSoAtOnce) {
  RawClient tls(patient().port());
  tls.send("\x16\x03\x01");
  EXPECT_THAT(tls.read_all(5), HasSubstr("this is no HTTP request"));
}

TEST(Framing, EmptyLinesBeforeARequestMeanNothing) {
  const std::string reply = ask("\r\n" + raw_post("/tokenize", R"({"content": "king"})") +
                                "\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(count_of(reply, "HTTP/1.1 200 OK"), 2u) << reply;
}

TEST(Framing, AnswersAreWholeWhateverRangeIsAsked) {
  for (const char* range : {"bytes=0-3", "bytes=0-,0-,0-,0-", "bytes=99999-"}) {
    const Reply health = get(patient().port(), "/health", {{"Range", range}});
    EXPECT_EQ(health.status, 200) << range;
    EXPECT_EQ(health.json["status"], "ok") << range;
  }
}

TEST(Framing, WhoAsksIsToldToGoOnOnce) {
  RawClient client(patient().port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n", 10), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"content": "king"})");
  const std::string reply = client.read_until("tokens", 10);
  EXPECT_THAT(reply, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  // Nor is a body awaited that is refused for its length.
  const std::string refused =
      ask("POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(refused, ::testing::StartsWith("HTTP/1.1 413 "));
}

TEST(Framing, BodiesThatEndEarlyOrAreMalformedAre400) {
  RawClient client(patient().port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{");
  client.half_close();
  EXPECT_THAT(client.read_all(10), HasSubstr("the body ended after 1 bytes, before its end"));
  EXPECT_THAT(ask("POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n"),
              HasSubstr(R"({"type":"error","error":{"type":"invalid_request_error","message":"the chunked body)"));
}

TEST(Framing, LengthsAreRefusedBeforeTheBodyComes) {
  const auto began = std::chrono::steady_clock::now();
  const std::string reply = ask("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 123456789012\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr(" 413 "));
  EXPECT_THAT(reply, HasSubstr("--max-body-mib"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(9));
  // Also where most of the body has been sent already: the answer is not lost in a reset.
  const size_t large = (size_t{32} << 20) + 1;
  RawClient client(patient().port());
  client.send("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(large) + "\r\n\r\n");
  client.send(std::string(size_t{4} << 20, 'x'));
  EXPECT_THAT(client.read_until("--max-body-mib", 10), HasSubstr(" 413 "));
}

TEST(Framing, RefusalsSayWhy) {
  EXPECT_THAT(ask("GET /health?x=" + std::string(20000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n"),
              HasSubstr("and up to 8190 are taken"));
  EXPECT_THAT(ask("GET /%00x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("there is no GET /%00x here"));
}

std::string completion(int64_t tokens, bool streamed) {
  return raw_post(
      "/completion",
      Json({{"prompt", "Once"}, {"n_predict", tokens}, {"ignore_eos", true}, {"n_probs", 20}, {"stream", streamed}})
          .dump());
}

TEST(HalfClose, ClientsThatSendNoMoreAreAnswered) {
  for (const bool streamed : {false, true}) {
    RawClient client(patient().port());
    client.send(completion(200, streamed));
    client.half_close();
    const std::string reply = client.read_all(20);
    EXPECT_THAT(reply, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(reply, HasSubstr("\"tokens_predicted\":200")) << streamed;
  }
  RawClient embeddings(patient().port());
  embeddings.send(raw_post("/v1/embeddings", Json({{"input", "A king"}}).dump()));
  embeddings.half_close();
  EXPECT_THAT(embeddings.read_all(20), HasSubstr("\"embedding\":["));
}

/// The server has sent it the first byte of an answer, and finds with the next that nobody reads it.
TEST(HalfClose, OneThatGoesAfterwardsIsNoticed) {
  ServedOptions options;
  options.parallel = 1;
  options.context = 16384;
  Served served(std::move(options));
  RawClient client(served.port());
  client.send(completion(16000, false));
  client.half_close();
  EXPECT_EQ(client.read_until("H", 10), "H");
  client.close();
  EXPECT_TRUE(eventually(
      [&] {
        const std::string metrics = get(served.port(), "/metrics").body;
        return metrics.find("moetier:requests_total{finish=\"cancelled\"} 1") != std::string::npos;
      },
      20));
}

}  // namespace
}  // namespace moetier::server
