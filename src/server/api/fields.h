// Reading a request's fields: strict about types, silent about unknown names.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"

namespace moetier::server {

/// A request's body: JSON, an object, of bounded depth. Errors: 400.
Json parse_body(const std::string& text);

/// A whole number, also one that is written 40.0. nullopt: it is none, or beyond int64.
std::optional<int64_t> whole_number(const Json& value);

/// An object's fields by name. null counts as absent. A wrong type or value is a 400 that names the field.
class Fields {
 public:
  /// `path` stands before the names in errors: "tools[0].function". Errors: `json` is no object.
  explicit Fields(const Json& json, std::string path = "");

  bool has(std::string_view name) const { return find(name) != nullptr; }
  const Json* find(std::string_view name) const;  ///< nullptr if absent or null
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max()) const;
  std::optional<double> number(std::string_view name, double min, double max) const;
  const std::string* text(std::string_view name) const;  ///< nullptr if absent
  const std::string& need_text(std::string_view name) const;
  const Json* array(std::string_view name) const;
  const Json* object(std::string_view name) const;
  const Json& need(std::string_view name) const;
  /// One text, or an array of them.
  std::vector<std::string> texts(std::string_view name) const;
  /// One of `choices`.
  std::optional<std::string> choice(std::string_view name, std::initializer_list<std::string_view> choices) const;

  std::string path(std::string_view name) const;
  [[noreturn]] void wrong(std::string_view name, std::string_view wanted) const;

 private:
  const Json& json_;
  std::string path_;
};

/// "messages", 3 -> "messages[3]".
std::string element(std::string_view path, size_t index);

}  // namespace moetier::server
