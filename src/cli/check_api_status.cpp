// check-api: what a server tells of itself.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

const Json kModel = {{"id", "string"}, {"object", "=model"}, {"created", "int"}, {"owned_by", "string"}};

/// A line of the Prometheus text format: a comment, or a name, perhaps labels, and a number.
bool is_series(std::string_view line) {
  if (line.empty() || line.front() == '#') return true;
  const size_t name = std::min(line.find_first_of("{ "), line.size());
  const bool named = name > 0 && std::ranges::all_of(line.substr(0, name), [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
                     });
  if (line.substr(name).starts_with('{')) {
    const size_t end = line.rfind('}');
    if (end == std::string_view::npos) return false;
    line.remove_prefix(end + 1);
  } else {
    line.remove_prefix(name);
  }
  if (!line.starts_with(' ')) return false;
  const std::string value(line.substr(1));
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  return named && end != value.c_str();
}

void check_metrics(ApiCheck& check) {
  const ApiReply reply = check.get("/metrics");
  if (reply.status == 404 || reply.status == 501) throw NotThere("/metrics is not there");
  expect(reply.status == 200, "status 200", reply.body);
  expect(reply.type.starts_with("text/plain"), "Content-Type text/plain", reply.type);
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = std::min(reply.body.find('\n', at), reply.body.size());
    const std::string line = reply.body.substr(at, end - at);
    expect(is_series(line), "lines of the Prometheus text format", line);
    at = end + 1;
  }
  for (const char* name : {"llamacpp:tokens_predicted_total", "llamacpp:requests_processing"})
    expect(series_value(reply.body, name).has_value(), name, "a text without it");
  check.metrics = true;
}

void check_models(ApiCheck& check) {
  const Json list = check.status("/v1/models", {{"object", "=list"}, {"data", Json::array({kModel})}});
  expect(!list["data"].empty(), "a model", "none");
  check.model = list["data"][0]["id"].get<std::string>();
  const Json::json_pointer context("/data/0/meta/n_ctx");
  if (list.contains(context) && list.at(context).is_number_integer()) check.context = list.at(context).get<int64_t>();
}

void check_model(ApiCheck& check) {
  const bool plain = std::ranges::all_of(check.model, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-._").find(c) != std::string_view::npos;
  });
  if (!plain) throw Unclear("the model's name needs more than letters, digits and -._ in an address");
  const Json model = check.status("/v1/models/" + check.model, kModel);
  expect(model["id"] == check.model, check.model, model["id"].dump());
}

}  // namespace

void check_status(ApiCheck& check) {
  check.check("/health: answers, without a key", Need::optional, [&] {
    const ApiReply reply = check.get("/health", "");
    if (reply.status == 404) throw NotThere("/health is not there");
    expect(reply.status == 200, "status 200", reply.body);
    expect_json(reply.json, {{"status", "string"}}, "the answer");
  });
  check.check("/v1/models: lists the model", Need::required, [&] { check_models(check); });
  check.check("/v1/models/{id}: tells of it", Need::optional, [&] { check_model(check); });
  check.check("/props: answers", Need::optional, [&] {
    const Json props = check.status(
        "/props",
        {{"default_generation_settings", {{"n_ctx", "int"}}}, {"total_slots", "int"}, {"chat_template", "string"}});
    check.context = props["default_generation_settings"]["n_ctx"].get<int64_t>();
  });
  check.check("/slots: answers", Need::optional, [&] {
    const Json slots =
        check.status("/slots", Json::array({{{"id", "int"}, {"n_ctx", "int"}, {"is_processing", "bool"}}}));
    expect(!slots.empty(), "a slot", "none");
    check.context = slots[0]["n_ctx"].get<int64_t>();
    check.slots = true;
  });
  check.check("/metrics: answers", Need::optional, [&] { check_metrics(check); });
}

void check_keys(ApiCheck& check) {
  if (check.target().key.empty()) return;
  const Json chat = {
      {"model", check.model}, {"messages", {{{"role", "user"}, {"content", kApiPrompt}}}}, {"max_tokens", 1}};
  const Json openai = {{"error", {{"message", "string"}, {"type", "string"}}}};
  const Json anthropic = {{"type", "=error"}, {"error", {{"type", "=authentication_error"}, {"message", "string"}}}};
  check.check("keys: OpenAI's endpoints want one", Need::required, [&] {
    check.refused(check.post("/v1/chat/completions", chat, ""), 401, openai);
    check.refused(check.post("/v1/chat/completions", chat, "wrong"), 401, openai);
  });
  check.check("keys: Anthropic's endpoints want one, and say so in their shape", Need::optional, [&] {
    check.refused(check.post("/v1/messages", chat, ""), 401, anthropic);
    check.refused(check.post("/v1/messages", chat, "wrong"), 401, anthropic);
  });
  check.check("keys: llama-server's endpoints want one", Need::optional, [&] {
    check.refused(check.post("/tokenize", {{"content", "x"}}, "wrong"), 401,
                  {{"error", {{"code", "int"}, {"message", "string"}, {"type", "string"}}}});
  });
  check.check("keys: X-Api-Key is one too", Need::required, [&] {
    const ApiReply right = check.get_with("/v1/models", "X-Api-Key", check.target().key);
    expect(right.status == 200, "status 200 with the key in X-Api-Key", right.body);
  });
  for (const char* path : {"/v1/models", "/metrics", "/slots", "/props"}) {
    check.check_own(std::string("keys: ") + path + " wants one", [&] {
      const int missing = check.get(path, "").status, wrong = check.get(path, "wrong").status;
      expect(missing == 401 && wrong == 401, "status 401 without the key and with a wrong one",
             std::to_string(missing) + " and " + std::to_string(wrong));
      expect(check.get(path).status == 200, "status 200 with the key", std::to_string(check.get(path).status));
    });
  }
}

}  // namespace moetier::cli
