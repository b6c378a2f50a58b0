#include "server/api/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace moetier::server {
namespace {

constexpr int kMostDepth = 100;
constexpr size_t kMostValues = 2'000'000;  // a prompt as token ids has one each

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return value.get<double>() == std::floor(value.get<double>()) ? "a number as large as that"
                                                                    : "a number with a fraction";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "a whole number";
    default:
      return "null";
  }
}

std::string plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

/// Refuses what would take far more memory or time than its bytes say. (The parser's own callback looks at all of an
/// object again for each value in it.)
void check_size(std::string_view json) {
  int depth = 0;
  size_t values = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' || c == '[' || c == '{') ++values;
    if (depth > kMostDepth) throw ApiError(400, fmt::format("the body nests more than {} levels deep", kMostDepth));
    if (values > kMostValues) throw ApiError(413, fmt::format("the body holds more than {} values", kMostValues));
  }
}

}  // namespace

Json parse_body(const std::string& text) {
  check_size(text);
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) throw ApiError(400, "the body must be a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    throw ApiError(400, text.empty()
                            ? std::string("the body is empty; send a JSON object")
                            : fmt::format("the body is not valid JSON: something is wrong at byte {}", error.byte));
  } catch (const Json::exception&) {
    throw ApiError(400, "the body is not valid JSON: it holds a number out of range");
  }
}

std::optional<int64_t> whole_number(const Json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (!(std::abs(number) <= kExact) || number != std::floor(number)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

Fields::Fields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
  if (!json.is_object()) bad_field(path_, fmt::format("{} must be an object", path_.empty() ? "the body" : path_));
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::find(std::string_view name) const {
  const auto it = json_.find(name);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::wrong(std::string_view name, std::string_view wanted) const {
  const Json* value = find(name);
  const std::string full = path(name);
  if (value == nullptr) bad_field(full, fmt::format("{} is needed, {}", full, wanted));
  bad_field(full, fmt::format("{} must be {}, not {}", full, wanted, kind_of(*value)));
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong(name, "a boolean");
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> whole = whole_number(*value);
  const bool huge = !whole && value->is_number_unsigned();
  if (!whole && !huge) wrong(name, "a whole number");
  const int64_t number = whole.value_or(max);
  if (number < min || number > max || (huge && max != std::numeric_limits<int64_t>::max())) {
    bad_field(path(name), fmt::format("{} must be from {} to {}, not {}", path(name), min, max, value->dump()));
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong(name, "a number");
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    bad_field(path(name),
              fmt::format("{} must be from {} to {}, not {}", path(name), plain(min), plain(max), value->dump()));
  }
  return number;
}

const std::string* Fields::text(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) wrong(name, "a string");
  return value->get_ptr<const std::string*>();
}

const std::string& Fields::need_text(std::string_view name) const {
  const std::string* value = text(name);
  if (value == nullptr) wrong(name, "a string");
  return *value;
}

const Json* Fields::array(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) wrong(name, "an array");
  return value;
}

const Json* Fields::object(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) wrong(name, "an object");
  return value;
}

const Json& Fields::need(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) bad_field(path(name), fmt::format("{} is needed", path(name)));
  return *value;
}

std::vector<std::string> Fields::texts(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) wrong(name, "a string or an array of strings");
  std::vector<std::string> out;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_string()) {
      const std::string full = element(path(name), i);
      bad_field(full, fmt::format("{} must be a string, not {}", full, kind_of(item)));
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::optional<std::string> Fields::choice(std::string_view name,
                                          std::initializer_list<std::string_view> choices) const {
  const std::string* value = text(name);
  if (value == nullptr) return std::nullopt;
  if (std::find(choices.begin(), choices.end(), *value) == choices.end()) {
    bad_field(path(name), fmt::format("{} must be one of {}", path(name), fmt::join(choices, ", ")));
  }
  return *value;
}

std::string element(std::string_view path, size_t index) {
  return fmt::format("{}[{}]", path, index);
}

}  // namespace moetier::server
