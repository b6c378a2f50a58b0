#include "server/api/prompt_input.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetier::server {
namespace {

TokenId read_id(const Json& json, const std::string& path, const ServedModel& model) {
  const int32_t size = model.tokenizer().vocab_size();
  const int64_t id = whole_number(json).value_or(-1);
  if (id < 0 || id >= size) {
    bad_field(path, fmt::format("{} is the token {}, which is not in the vocabulary of {}", path, json.dump(), size));
  }
  return static_cast<TokenId>(id);
}

bool all(const Json& array, bool (Json::*is)() const noexcept) {
  return std::all_of(array.begin(), array.end(), [&](const Json& item) { return (item.*is)(); });
}

}  // namespace

std::vector<TokenId> read_prompt(const Json& json, const std::string& path, const ServedModel& model,
                                 const EncodeOptions& options) {
  const Tokenizer& words = model.tokenizer();
  if (json.is_string()) return words.encode(json.get<std::string>(), options);
  if (!json.is_array()) bad_field(path, fmt::format("{} must be a text or an array of token ids", path));
  std::vector<TokenId> ids;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = element(path, i);
    if (json[i].is_number()) {
      ids.push_back(read_id(json[i], where, model));
    } else if (json[i].is_string()) {
      const EncodeOptions each{.add_special = options.add_special && i == 0, .parse_special = options.parse_special};
      const auto more = words.encode(json[i].get<std::string>(), each);
      ids.insert(ids.end(), more.begin(), more.end());
    } else {
      bad_field(where, fmt::format("{} must be a token id or a text", where));
    }
  }
  return ids;
}

std::vector<std::vector<TokenId>> read_prompts(const Json& json, const std::string& path, const ServedModel& model,
                                               size_t most) {
  // An array of texts alone, or one that holds arrays, is several prompts; one with ids is a single prompt.
  const bool several = json.is_array() && !json.empty() &&
                       (all(json, &Json::is_string) ||
                        std::any_of(json.begin(), json.end(), [](const Json& item) { return item.is_array(); }));
  if (!several) return {read_prompt(json, path, model)};
  if (json.size() > most) {
    bad_field(path, fmt::format("{} holds {} prompts; send at most {} in one request", path, json.size(), most));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < json.size(); ++i) prompts.push_back(read_prompt(json[i], element(path, i), model));
  return prompts;
}

}  // namespace moetier::server
