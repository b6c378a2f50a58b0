// Server-sent events.
#pragma once

#include <httplib.h>

#include <memory>
#include <string>
#include <string_view>

#include "server/api/answers.h"

namespace moetier::server {

/// JSON as bytes; what is no valid UTF-8 (a token that is half a character) becomes U+FFFD.
std::string dump(const Json& json);

class SseWriter {
 public:
  explicit SseWriter(httplib::DataSink& sink) : sink_(sink) {}
  /// "data: JSON". Errors, as of all: ClientGone.
  void data(const Json& json) { write("data: " + dump(json) + "\n\n"); }
  void data_text(std::string_view text) { write("data: " + std::string(text) + "\n\n"); }
  /// "event: NAME" before it.
  void event(std::string_view name, const Json& json) {
    write("event: " + std::string(name) + "\ndata: " + dump(json) + "\n\n");
  }
  void comment() { write(": keep-alive\n\n"); }

 private:
  void write(const std::string& text);
  httplib::DataSink& sink_;
};

/// How an API streams an answer.
class StreamShape {
 public:
  virtual ~StreamShape() = default;
  virtual void begin(SseWriter&) {}
  virtual void part(SseWriter& out, const AnswerPart& part) = 0;
  virtual void end(SseWriter&) {}
  virtual void error(SseWriter& out, const ApiError& error) = 0;
  virtual void keep_alive(SseWriter& out) { out.comment(); }
};

/// Makes `response` a stream of the answers, with a sign of life every `keep_alive_seconds` of silence. What is still
/// generated is cancelled when the client goes.
void stream_answers(httplib::Response& response, std::shared_ptr<Answers> answers, std::shared_ptr<StreamShape> shape,
                    double keep_alive_seconds);

}  // namespace moetier::server
