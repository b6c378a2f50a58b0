#include "server/api/sse.h"

#include <algorithm>

#include "base/log.h"
#include "server/http/http_server.h"

namespace moetier::server {
namespace {

constexpr std::chrono::milliseconds kLook{250};  // how soon a client that may be gone is sent a sign of life

void run(httplib::DataSink& sink, Answers& answers, StreamShape& shape, double keep_alive_seconds) {
  SseWriter out(sink);
  try {
    shape.begin(out);
    auto last = Clock::now();
    Connection* const client = current_connection();
    while (!answers.ended()) {
      const auto due = last + seconds(keep_alive_seconds);
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now());
      if (const auto part = answers.next(std::clamp(left, std::chrono::milliseconds(0), kLook))) {
        shape.part(out, *part);
        last = Clock::now();
      } else if ((Clock::now() >= due || (client != nullptr && client->probe_due())) && !answers.ended()) {
        shape.keep_alive(out);
        last = Clock::now();
      }
    }
    shape.end(out);
  } catch (const ClientGone&) {
    throw;
  } catch (...) {
    shape.error(out, to_api_error(std::current_exception()));
  }
}

}  // namespace

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void SseWriter::write(const std::string& text) {
  if (!sink_.write(text.data(), text.size())) throw ClientGone();
}

void stream_answers(httplib::Response& response, std::shared_ptr<Answers> answers, std::shared_ptr<StreamShape> shape,
                    double keep_alive_seconds) {
  response.set_header("Cache-Control", "no-cache");
  response.set_header("X-Accel-Buffering", "no");
  response.set_chunked_content_provider("text/event-stream", [answers = std::move(answers), shape = std::move(shape),
                                                              keep_alive_seconds](size_t, httplib::DataSink& sink) {
    try {
      run(sink, *answers, *shape, keep_alive_seconds);
      sink.done();
      return true;
    } catch (const std::exception& error) {
      const Connection* const client = current_connection();
      answers->cancel(client != nullptr && client->stalled());
      log::verbose("a stream ended early: {}", error.what());
      return false;
    }
  });
}

}  // namespace moetier::server
