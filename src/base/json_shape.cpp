#include "base/json_shape.h"

#include <fmt/format.h>

#include "base/error.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShown = 200;  // bytes of a wrong value that are told

std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

bool is(const Json& json, std::string_view kind) {
  if (kind.starts_with('=')) return json.is_string() && json.get_ref<const std::string&>() == kind.substr(1);
  if (kind == "any") return true;
  if (kind == "string") return json.is_string();
  if (kind == "int") return json.is_number_integer();
  if (kind == "number") return json.is_number();
  if (kind == "bool") return json.is_boolean();
  if (kind == "null") return json.is_null();
  if (kind == "object") return json.is_object();
  if (kind == "array") return json.is_array();
  fail("the shape names an unknown kind: {}", kind);
}

bool is_one_of(const Json& json, std::string_view kinds) {
  for (;;) {
    const size_t end = kinds.find('|');
    if (is(json, kinds.substr(0, end))) return true;
    if (end == std::string_view::npos) return false;
    kinds.remove_prefix(end + 1);
  }
}

std::string object_problem(const Json& json, const Json& shape, const std::string& where) {
  if (!json.is_object()) return fmt::format("{} should be an object: {}", where, shown(json));
  for (const auto& [key, wanted] : shape.items()) {
    const bool optional = key.ends_with('?');
    const std::string name = optional ? key.substr(0, key.size() - 1) : key;
    const auto found = json.find(name);
    if (found == json.end()) {
      if (optional) continue;
      return fmt::format("{} lacks {}: {}", where, name, shown(json));
    }
    const std::string problem = shape_problem(*found, wanted, where + "." + name);
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string array_problem(const Json& json, const Json& shape, const std::string& where) {
  if (shape.size() != 1) fail("an array in a shape has one element, not {}", shape.size());
  if (!json.is_array()) return fmt::format("{} should be an array: {}", where, shown(json));
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string problem = shape_problem(json[i], shape[0], fmt::format("{}[{}]", where, i));
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::string shape_problem(const Json& json, const Json& shape, const std::string& where) {
  if (shape.is_object()) return object_problem(json, shape, where);
  if (shape.is_array()) return array_problem(json, shape, where);
  if (!shape.is_string()) fail("a shape is made of objects, arrays and texts, not of {}", shown(shape));
  const auto& kinds = shape.get_ref<const std::string&>();
  return is_one_of(json, kinds) ? "" : fmt::format("{} should be {}: {}", where, kinds, shown(json));
}

}  // namespace moetier
