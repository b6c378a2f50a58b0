// JSON schemas as grammars, so that a model can only write documents that are valid.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moetier {

struct JsonSchemaOptions {
  /// White space between tokens of the document: none at all, or (the default) at most one space, or a line break with
  /// at most 20 spaces or tabs. Never unbounded: a model could write it for ever.
  bool compact = false;
  size_t max_grammar = size_t{1} << 20;  ///< bytes of GBNF; more is an error
  /// Put before the name of each rule, so that several schemas fit into one grammar.
  std::string prefix;
  /// Where given, a keyword that cannot be kept is left out, at the place where it stands, and what was left out is
  /// added here ("uniqueItems at #/properties/tags"); other documents than the schema's can come out then. A part that
  /// cannot be understood at all takes any value of its type. Without it both are errors.
  std::vector<std::string>* loosened = nullptr;
};

/// GBNF for the documents that the schema allows: every document it derives is valid (some valid ones it does not
/// derive: properties come in the schema's order, numbers have a bounded number of digits, and without
/// `additionalProperties` an object with `properties` has no others).
///
/// Understood: true and {}; type (one or several), const, enum, properties, required, additionalProperties, items,
/// prefixItems, additionalItems, minItems, maxItems, minLength, maxLength, pattern (a subset of regular expressions),
/// format (date, time, date-time, uuid and the like; unknown formats only annotate), minimum, maximum,
/// exclusiveMinimum, exclusiveMaximum, anyOf, oneOf, allOf (merged), $ref to anywhere inside the schema (also
/// recursive), $defs, definitions, nullable. Annotations (title, description, default, examples, ...) are ignored.
///
/// Errors (usage) name the keyword and where it stands (`#/properties/a/not`): a keyword that would change what is
/// valid and is not understood, a reference that leads nowhere or outside, contradictions (minItems over maxItems, an
/// allOf that nothing satisfies), limits. `oneOf` is taken as `anyOf` where its branches cannot both hold, else it is
/// an error.
///
/// The parsed schema must not be nested beyond what its parser allowed; more than 200 levels are an error here.
std::string json_schema_grammar(const nlohmann::ordered_json& schema, const JsonSchemaOptions& options = {});

/// The grammar of any JSON object (`response_format: {"type": "json_object"}`).
std::string json_object_grammar(const JsonSchemaOptions& options = {});

}  // namespace moetier
