// Answers of a server that speaks OpenAI's chat API.
#include <fmt/format.h>
#include <httplib.h>

#include "base/error.h"
#include "cli/eval_answers.h"
#include "cli/server_url.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSeconds = 24 * 3600;  // for one answer: a streamed model takes its time

/// An error reply in one line.
std::string told(const httplib::Response& reply) {
  const Json json = Json::parse(reply.body, nullptr, false);
  const Json::json_pointer message("/error/message");
  const bool known = json.is_object() && json.contains(message) && json.at(message).is_string();
  std::string text = known ? json.at(message).get<std::string>() : reply.body.substr(0, 200);
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  return fmt::format("the server answered {}: {}", reply.status, text);
}

class ServedAnswers final : public Answers {
 public:
  ServedAnswers(const std::string& url, const std::string& key, int64_t max_tokens)
      : url_(url), prefix_(parse_server_url(url).prefix), client_(parse_server_url(url).host), max_tokens_(max_tokens) {
    if (!client_.is_valid()) usage_error("--url {} is no address: write http://HOST:PORT", url);
    client_.set_read_timeout(kMostSeconds);
    if (!key.empty()) client_.set_default_headers({{"Authorization", fmt::format("Bearer {}", key)}});
    const httplib::Response models = checked(client_.Get(prefix_ + "/v1/models"));
    if (models.status == 401 || models.status == 403)
      fail("the server at {} wants {} key; give it with --api-key", url, key.empty() ? "a" : "another");
    if (models.status != 200) fail("{} is no server that can be asked: {}", url, told(models));
    const Json list = Json::parse(models.body, nullptr, false);
    const Json::json_pointer id("/data/0/id");
    if (list.is_object() && list.contains(id) && list.at(id).is_string()) model_ = list.at(id).get<std::string>();
  }

  Answer of(const CodeTask& task) override {
    const Json messages = Json::array({{{"role", "user"}, {"content", question_of(task)}}});
    const Json body = {{"model", model_}, {"messages", messages}, {"max_tokens", max_tokens_}, {"temperature", 0}};
    const httplib::Response reply =
        checked(client_.Post(prefix_ + "/v1/chat/completions", body.dump(), "application/json"));
    if (interrupted()) throw Cancelled();
    if (reply.status != 200) return {"", told(reply)};
    const Json json = Json::parse(reply.body, nullptr, false);
    const Json::json_pointer content("/choices/0/message/content");
    if (!json.is_object() || !json.contains(content) || !json.at(content).is_string())
      return {"", "the server's reply has no text"};
    return {json.at(content).get<std::string>(), ""};
  }

 private:
  static std::string reason(httplib::Error error) {
    switch (error) {
      case httplib::Error::Connection:
        return "nobody listens there";
      case httplib::Error::ConnectionTimeout:
        return "no connection came about in time";
      case httplib::Error::Read:
        return "the connection ended, or nothing came for too long";
      case httplib::Error::Write:
        return "the request could not be sent";
      default:
        return "the library says \"" + httplib::to_string(error) + "\"";
    }
  }

  httplib::Response checked(const httplib::Result& result) const {
    if (!result) fail("the server at {} does not answer: {}", url_, reason(result.error()));
    return result.value();
  }

  std::string url_, prefix_;
  httplib::Client client_;
  int64_t max_tokens_;
  std::string model_ = "default";
};

}  // namespace

std::unique_ptr<Answers> answers_of_server(const std::string& url, const std::string& key, int64_t max_tokens) {
  return std::make_unique<ServedAnswers>(url, key, max_tokens);
}

}  // namespace moetier::cli
