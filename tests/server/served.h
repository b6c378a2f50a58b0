// A server over the demo model, and clients that speak to it through real sockets.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <string>
#include <vector>

#include "server/api_server.h"

namespace moetier::server {

/// A chat format that most models share, tools and thoughts included.
inline constexpr const char* kTestTemplate =
    "{%- if tools %}<|tools|>{{ tools | tojson }} <tool_call>{% endif -%}"
    "{%- for m in messages %}<|{{ m.role }}|>{{ m.reasoning_content or '' }}{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor -%}"
    "{% endfor -%}{% if add_generation_prompt %}<|assistant|>{{ '<think>\\n' if enable_thinking }}{% endif %}";

struct ServedOptions {
  int parallel = 4, queue = 64;
  int64_t context = 512;
  ServiceOptions service;
  HttpOptions http;
  std::string slot_save_path;
  double stall_seconds = 30;
  int stream_events = 256;
  std::string chat_template = kTestTemplate;
};

class Served {
 public:
  explicit Served(ServedOptions options = {});
  ~Served();
  int port() const { return api_->port(); }
  Scheduler& scheduler() { return *scheduler_; }
  ApiServer& api() { return *api_; }
  Engine& engine() { return *engine_; }
  ServedModel& model() { return *model_; }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ApiServer> api_;
};

/// One server that tests share which leave nothing behind.
Served& shared();

struct Reply {
  int status = 0;
  Json json;
  std::string body;
  httplib::Headers headers;
};
Reply get(int port, const std::string& path, const httplib::Headers& headers = {});
Reply post(int port, const std::string& path, const Json& body, const httplib::Headers& headers = {});
Reply post_text(int port, const std::string& path, const std::string& body, const httplib::Headers& headers = {});

struct SseEvent {
  std::string name;  ///< empty where there was none
  std::string text;  ///< the data
  Json json;         ///< discarded where the data is no JSON
};
/// Reads a stream to its end; the answer must be one.
std::vector<SseEvent> stream(int port, const std::string& path, Json body);
std::vector<SseEvent> parse_events(const std::string& text);

/// A bare connection, for what no client library does.
class RawClient {
 public:
  /// `narrow`: takes little before it is read from.
  explicit RawClient(int port, bool narrow = false);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void send(const std::string& text);
  /// What comes until `mark` is in it, the end, or `seconds` are over.
  std::string read_until(const std::string& mark, double seconds);
  std::string read_all(double seconds) { return read_until("", seconds); }
  void half_close();  ///< it sends no more, and goes on reading
  void close();

 private:
  int fd_;
};
std::string raw_post(const std::string& path, const std::string& body, const std::string& headers = "");

/// Fails unless `json` looks like `shape`: an object has at least the shape's keys, an array's elements all look like
/// the shape's only one, a text in the shape is "string", "int", "number", "bool", "null", "any", "object", several of
/// them with | between, or =TEXT for that very text.
void expect_shape(const Json& json, const Json& shape, const std::string& where = "$");

/// A bias against writing <think>, for a model that was never taught to stop it.
Json no_thoughts();

/// Waits until `condition` holds, up to `seconds`.
bool eventually(const std::function<bool()>& condition, double seconds = 10);

}  // namespace moetier::server
