// check-api: errors in each API's shape.
#include <fmt/format.h>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLongestContext = 1 << 18;  // beyond, a prompt that overflows it is too long to send

const Json kOpenAi = {
    {"error", {{"message", "string"}, {"type", "string"}, {"param?", "string|null"}, {"code?", "string|int|null"}}}};
const Json kAnthropic = {{"type", "=error"}, {"error", {{"type", "=invalid_request_error"}, {"message", "string"}}}};
const Json kNative = {{"error", {{"code", "int"}, {"message", "string"}, {"type", "string"}}}};

void expect_param(const ApiCheck& check, const Json& error, const std::string& name) {
  if (!check.target().own) return;
  expect(text_at(error, "/error/param") == name, fmt::format("an error that names {}", name), error.dump());
}

void check_wrong_fields(ApiCheck& check) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  check.check("errors: /v1/chat/completions names the field", Need::required, [&] {
    const Json no_list = {{"model", check.model}, {"messages", 3}};
    expect_param(check, check.refused(check.post("/v1/chat/completions", no_list), 400, kOpenAi), "messages");
    const Json hot = {{"model", check.model}, {"messages", messages}, {"temperature", "hot"}, {"max_tokens", 1}};
    expect_param(check, check.refused(check.post("/v1/chat/completions", hot), 400, kOpenAi), "temperature");
  });
  check.check("errors: a body that is no JSON", Need::required,
              [&] { check.refused(check.post_text("/v1/chat/completions", "{\"messages\": ["), 400, kOpenAi); });
  check.check("errors: /v1/completions names the field", Need::optional, [&] {
    expect_param(check, check.refused(check.post("/v1/completions", {{"model", check.model}}), 400, kOpenAi), "prompt");
  });
  check.check("errors: /v1/responses names the field", Need::optional, [&] {
    expect_param(check, check.refused(check.post("/v1/responses", {{"model", check.model}}), 400, kOpenAi), "input");
  });
  check.check("errors: /v1/messages in Anthropic's shape", Need::optional, [&] {
    check.refused(check.post("/v1/messages", {{"model", check.model}, {"max_tokens", 4}}), 400, kAnthropic);
    check.refused(check.post("/v1/messages", {{"model", check.model}, {"max_tokens", 4}, {"messages", "Hi"}}), 400,
                  kAnthropic);
  });
  check.check("errors: /completion in llama-server's shape", Need::optional, [&] {
    expect_param(check, check.refused(check.post("/completion", {{"n_predict", 1}}), 400, kNative), "prompt");
  });
  check.check("errors: what is not there is 404", Need::required,
              [&] { check.refused(check.get("/v1/nowhere"), 404, kOpenAi); });
}

void check_overflow(ApiCheck& check) {
  std::string text;
  const auto too_long = [&] {
    if (check.context <= 0) throw Unclear("the server does not tell its context");
    if (check.context > kLongestContext)
      throw Unclear(fmt::format("a context of {} is too long to overflow", check.context));
    if (!text.empty()) return;
    for (int64_t i = 0; i < check.context * 2; ++i) text += "king ";
  };
  const auto expect_overflow = [&](const Json& error) {
    const bool said = text_at(error, "/error/code") == "context_length_exceeded" ||
                      text_at(error, "/error/type") == "exceed_context_size_error";
    expect(said, "code context_length_exceeded or type exceed_context_size_error", error.dump());
  };
  const auto messages = [&] { return Json::array({{{"role", "user"}, {"content", text}}}); };
  check.check("context overflow: /v1/chat/completions", Need::required, [&] {
    too_long();
    const Json body = {{"model", check.model}, {"messages", messages()}, {"max_tokens", 1}};
    expect_overflow(check.refused(check.post("/v1/chat/completions", body), 400, kOpenAi));
  });
  check.check("context overflow: /v1/completions", Need::optional, [&] {
    too_long();
    const Json body = {{"model", check.model}, {"prompt", text}, {"max_tokens", 1}};
    expect_overflow(check.refused(check.post("/v1/completions", body), 400, kOpenAi));
  });
  check.check("context overflow: /v1/responses", Need::optional, [&] {
    too_long();
    const Json body = {{"model", check.model}, {"input", text}, {"max_output_tokens", 1}};
    expect_overflow(check.refused(check.post("/v1/responses", body), 400, kOpenAi));
  });
  check.check("context overflow: /v1/messages", Need::optional, [&] {
    too_long();
    const Json body = {{"model", check.model}, {"messages", messages()}, {"max_tokens", 1}};
    check.refused(check.post("/v1/messages", body), 400, kAnthropic);
  });
  check.check("context overflow: /completion, with both numbers", Need::optional, [&] {
    too_long();
    Json shape = kNative;
    shape["error"]["n_ctx"] = "int";
    shape["error"]["n_prompt_tokens"] = "int";
    expect_overflow(check.refused(check.post("/completion", {{"prompt", text}, {"n_predict", 1}}), 400, shape));
  });
}

}  // namespace

void check_errors(ApiCheck& check) {
  check_wrong_fields(check);
  check_overflow(check);
}

}  // namespace moetier::cli
