// A small language for what JSON should look like, so that answers of APIs can be checked key by key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moetier {

/// The first place where `json` does not look like `shape`, as a line ("$.choices[0].index should be int: null"); empty
/// if there is none. An object has at least the shape's keys (one that ends with ? may be absent), an array's elements
/// all look like the shape's only one; a text in the shape is "string", "int", "number", "bool", "null", "any",
/// "object", "array", =TEXT for that very text, or several of them with | between. Errors: a shape of something else.
std::string shape_problem(const nlohmann::ordered_json& json, const nlohmann::ordered_json& shape,
                          const std::string& where = "$");

}  // namespace moetier
