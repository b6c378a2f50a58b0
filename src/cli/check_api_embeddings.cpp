// check-api: /v1/embeddings, where the server gives any.
#include <fmt/format.h>

#include <cmath>

#include "cli/check_api.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/embeddings";

Json shape(const Json& embedding) {
  return {{"object", "=list"},
          {"model", "string"},
          {"data", Json::array({{{"object", "=embedding"}, {"index", "int"}, {"embedding", embedding}}})},
          {"usage", {{"prompt_tokens", "int"}, {"total_tokens", "int"}}}};
}

void check_vectors(const ApiCheck& check, size_t& width) {
  const Json body = {{"model", check.model}, {"input", Json::array({"The king", "The queen", "The king"})}};
  const Json data = check.answer(kPath, body, shape(Json::array({"number"})))["data"];
  expect(data.size() == 3, "3 embeddings", std::to_string(data.size()));
  width = data[0]["embedding"].size();
  double length = 0;
  for (const Json& x : data[0]["embedding"]) length += std::pow(x.get<double>(), 2);
  for (size_t i = 0; i < data.size(); ++i) {
    expect(data[i]["index"] == i, fmt::format("index {}", i), data[i]["index"].dump());
    expect(width > 0 && data[i]["embedding"].size() == width, fmt::format("{} numbers", width),
           std::to_string(data[i]["embedding"].size()));
  }
  expect(std::abs(length - 1) < 1e-3, "embeddings of length 1", std::to_string(std::sqrt(length)));
  expect(data[0]["embedding"] != data[1]["embedding"], "other embeddings of other texts", "the same");
}

}  // namespace

void check_embeddings(ApiCheck& check) {
  size_t width = 0;
  const Outcome there =
      check.check(fmt::format("{}: of several texts", kPath), Need::optional, [&] { check_vectors(check, width); });
  if (there != Outcome::passed) return;
  check.check(fmt::format("{}: as base64", kPath), Need::optional, [&] {
    const Json body = {{"model", check.model}, {"input", "The king"}, {"encoding_format", "base64"}};
    const Json data = check.answer(kPath, body, shape("string"))["data"];
    expect(data.size() == 1, "1 embedding", std::to_string(data.size()));
    const size_t bytes = data[0]["embedding"].get_ref<const std::string&>().size(), wanted = (width * 4 + 2) / 3 * 4;
    expect(bytes == wanted, fmt::format("{} characters for {} floats", wanted, width), std::to_string(bytes));
  });
}

}  // namespace moetier::cli
