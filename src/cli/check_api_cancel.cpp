// check-api: a client that hangs up ends its request.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(10);
constexpr int64_t kMostTokens = 4096;

/// Whether the server works on anything, by /slots or else by /metrics.
bool busy(const ApiCheck& check) {
  if (check.slots) {
    const Json slots = check.get("/slots").json;
    if (!slots.is_array()) return false;
    return std::ranges::any_of(slots,
                               [](const Json& slot) { return slot.is_object() && slot.value("is_processing", false); });
  }
  return series_value(check.get("/metrics").body, "llamacpp:requests_processing").value_or(0) > 0;
}

bool idle_soon(const ApiCheck& check) {
  for (const auto until = Clock::now() + kPatience; Clock::now() < until;) {
    if (!busy(check)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

double predicted(const ApiCheck& check) {
  return check.metrics ? series_value(check.get("/metrics").body, "llamacpp:tokens_predicted_total").value_or(0) : 0;
}

/// A request that would go on for long. Its end in the middle shows twice: the slots are free soon, and fewer tokens
/// were made than asked for.
void hang_up(const ApiCheck& check, const std::string& path, Json body, const char* limit, const char* mark) {
  if (!check.slots && !check.metrics) throw Unclear("neither /slots nor /metrics tells what the server works on");
  if (!idle_soon(check)) throw Unclear("the server works for others");
  const int64_t tokens = check.context > 0 ? std::clamp<int64_t>(check.context * 3 / 4, 1, kMostTokens) : kMostTokens;
  body[limit] = tokens;
  body["ignore_eos"] = true;
  const double before = predicted(check);
  if (!check.hang_up(path, std::move(body), mark)) throw Wrong(fmt::format("a stream with {}", mark), "none");
  if (!idle_soon(check)) throw Wrong("an idle server within 10 s after the client hung up", "one that still works");
  const double made = predicted(check) - before;
  expect(made < static_cast<double>(tokens), fmt::format("fewer tokens than the {} asked for", tokens),
         fmt::format("{}", made));
}

}  // namespace

void check_cancel(ApiCheck& check) {
  const Json messages = Json::array({{{"role", "user"}, {"content", kApiPrompt}}});
  check.check("cancel: /v1/chat/completions", Need::required, [&] {
    const Json body = {{"model", check.model}, {"messages", messages}};
    hang_up(check, "/v1/chat/completions", body, "max_tokens", "\"choices\"");
  });
  check.check("cancel: /v1/completions", Need::optional, [&] {
    hang_up(check, "/v1/completions", {{"model", check.model}, {"prompt", kApiPrompt}}, "max_tokens", "\"choices\"");
  });
  check.check("cancel: /v1/responses", Need::optional, [&] {
    hang_up(check, "/v1/responses", {{"model", check.model}, {"input", kApiPrompt}}, "max_output_tokens",
            "response.created");
  });
  check.check("cancel: /v1/messages", Need::optional, [&] {
    const Json body = {{"model", check.model}, {"messages", messages}};
    hang_up(check, "/v1/messages", body, "max_tokens", "message_start");
  });
  check.check("cancel: /completion", Need::optional, [&] {
    hang_up(check, "/completion", {{"prompt", kApiPrompt}}, "n_predict", "\"content\"");
  });
}

}  // namespace moetier::cli
