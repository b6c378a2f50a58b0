#include "served.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/json_shape.h"
#include "engine/sanitized.h"

namespace moetier::server {
namespace {

std::shared_ptr<Engine> demo_engine() {
  static const std::shared_ptr<Engine> engine = [] {
    EngineOptions options;
    options.cpu.threads = 2;
    return std::shared_ptr<Engine>(
        Engine::load(std::string(MOETIER_SOURCE_DIR) + "/models/fairytale-moe-q8_0.gguf", options));
  }();
  return engine;
}

Reply reply_of(const httplib::Result& result) {
  Reply reply;
  if (!result) {
    ADD_FAILURE() << "no answer: " << httplib::to_string(result.error());
    return reply;
  }
  reply.status = result->status;
  reply.body = result->body;
  reply.headers = result->headers;
  reply.json = Json::parse(result->body, nullptr, false);
  return reply;
}

httplib::Client client(int port) {
  httplib::Client c("127.0.0.1", port);
  c.set_read_timeout(60);
  return c;
}

}  // namespace

Served::Served(ServedOptions options) : engine_(demo_engine()) {
  ContextOptions context;
  context.context = options.context;
  context.sequences = options.parallel;
  context.ubatch = 128;
  context_ = std::make_unique<Context>(*engine_, context);
  model_ = std::make_unique<ServedModel>(*engine_, "fairytale", options.chat_template);
  SchedulerOptions scheduler;
  scheduler.parallel = options.parallel;
  scheduler.queue = options.queue;
  scheduler.slot_save_path = options.slot_save_path;
  scheduler.stall_seconds = options.stall_seconds;
  scheduler.stream_events = options.stream_events;
  scheduler.log_requests = false;
  scheduler_ = std::make_unique<Scheduler>(*context_, scheduler);
  options.http.port = 0;
  api_ = std::make_unique<ApiServer>(*model_, *scheduler_, std::move(options.service), options.http);
  api_->start();
}

Served::~Served() {
  api_->stop();
}

Served& shared() {
  static Served served;
  return served;
}

Reply get(int port, const std::string& path, const httplib::Headers& headers) {
  return reply_of(client(port).Get(path, headers));
}

Reply post_text(int port, const std::string& path, const std::string& body, const httplib::Headers& headers) {
  return reply_of(client(port).Post(path, headers, body, "application/json"));
}

Reply post(int port, const std::string& path, const Json& body, const httplib::Headers& headers) {
  return post_text(port, path, body.dump(), headers);
}

std::vector<SseEvent> parse_events(const std::string& text) {
  std::vector<SseEvent> events;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event without end: " << text.substr(at, 200);
    if (end == std::string::npos) break;
    SseEvent event;
    size_t line = at;
    while (line < end) {
      const size_t stop = std::min(text.find('\n', line), end);
      const std::string one = text.substr(line, stop - line);
      line = stop + 1;
      if (one.starts_with("event: ")) event.name = one.substr(7);
      if (one.starts_with("data: ")) event.text = one.substr(6);
    }
    at = end + 2;
    if (event.text.empty()) continue;  // a sign of life
    event.json = Json::parse(event.text, nullptr, false);
    events.push_back(std::move(event));
  }
  return events;
}

std::vector<SseEvent> stream(int port, const std::string& path, Json body) {
  body["stream"] = true;
  const Reply reply = post(port, path, body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const auto type = reply.headers.find("Content-Type");
  EXPECT_TRUE(type != reply.headers.end() && type->second.starts_with("text/event-stream"));
  return parse_events(reply.body);
}

RawClient::RawClient(int port, bool narrow) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const int size = 4096;
  if (narrow) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

RawClient::~RawClient() {
  close();
}

void RawClient::half_close() {
  ::shutdown(fd_, SHUT_WR);
}

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::send(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has had enough
    done += static_cast<size_t>(n);
  }
}

std::string RawClient::read_until(const std::string& mark, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::string text;
  char piece[4096];
  while (mark.empty() || text.find(mark) == std::string::npos) {
    const auto left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
    pollfd one{fd_, POLLIN, 0};
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left * 1000) + 1) <= 0) break;
    const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
    if (n <= 0) break;
    text.append(piece, static_cast<size_t>(n));
  }
  return text;
}

std::string raw_post(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

void expect_shape(const Json& json, const Json& shape, const std::string& where) {
  EXPECT_EQ(shape_problem(json, shape, where), "");
}

Json no_thoughts() {
  return {{"th", -100}, {"thi", -100}, {"thin", -100}, {"think", -100},
          {"h", -100},  {"hi", -100},  {"hin", -100},  {"hink", -100}};
}

bool eventually(const std::function<bool()>& condition, double seconds) {
  if (testing_support::kSanitized) seconds *= 6;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

}  // namespace moetier::server
