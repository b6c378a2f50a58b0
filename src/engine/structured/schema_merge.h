// Combining JSON schemas: what satisfies two of them at once, and whether anything can.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"

namespace moetier {

/// A schema that contradicts itself: an error, unless it is one of several alternatives.
class ImpossibleSchema : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void impossible_schema(fmt::format_string<Args...> format, Args&&... args) {
  throw ImpossibleSchema(ErrorKind::usage, fmt::format(format, std::forward<Args>(args)...));
}

using SchemaJson = nlohmann::ordered_json;

/// A schema as a whole, for what its parts refer to.
class SchemaDocument {
 public:
  explicit SchemaDocument(const SchemaJson& root) : root_(&root) {}

  /// What a reference points to. Errors (usage) name it and `where` it stands.
  const SchemaJson& resolve(const std::string& reference, const std::string& where) const;
  /// The schema with $ref and allOf taken in: an object without them, or true or false. anyOf and oneOf that would
  /// have to be multiplied become one anyOf. `where`: its place, for errors.
  SchemaJson flat(const SchemaJson& schema, const std::string& where, int depth = 0) const;
  /// A flat schema for what satisfies both flat ones; false where nothing can.
  SchemaJson both(const SchemaJson& a, const SchemaJson& b, const std::string& where, int depth = 0) const;
  /// Whether no text that the grammar of `a` derives can satisfy `b`. False also where that is hard to tell.
  bool excludes(const SchemaJson& a, const SchemaJson& b, const std::string& where, int depth = 0) const;

  /// Combining has cost all it may: whatever else is asked of it is an error.
  bool exhausted() const;

 private:
  /// Counts what combining schemas costs; a usage error beyond a limit (a few references can ask for a great deal).
  void charge(const SchemaJson& schema, const std::string& where) const;

  const SchemaJson* root_;
  mutable size_t spent_ = 0;
};

/// Whether the keyword only annotates, so that it may be ignored.
bool is_annotation(const std::string& keyword);
/// "object" for an object, and so on; "integer" for a whole number.
std::string json_type_name(const SchemaJson& value);
/// Whether a value has one of the schema's types (all of them without `type`).
bool has_type(const SchemaJson& schema, const SchemaJson& value);

}  // namespace moetier
