// Tools as a request brings them.
#pragma once

#include <nlohmann/json.hpp>

namespace moetier::testing_support {

inline const nlohmann::ordered_json& tools() {
  static const auto list = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "units": {"type": "string", "enum": ["C", "F"]}},
      "required": ["city"]}}},
    {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {
      "args": {"type": "array", "items": {"type": "integer"}}, "dry": {"type": "boolean"}}, "required": ["args"]}}},
    {"name": "now", "input_schema": {"type": "object", "properties": {}}}])");
  return list;
}

}  // namespace moetier::testing_support
