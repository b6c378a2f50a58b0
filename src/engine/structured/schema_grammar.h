// Writes the grammar of a JSON schema.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/json_schema.h"
#include "engine/structured/number_grammar.h"
#include "engine/structured/pattern_grammar.h"
#include "engine/structured/schema_merge.h"
#include "engine/structured/schema_notation.h"

namespace moetier {

/// One rule per distinct schema; a rule's body is an expression in GBNF.
class SchemaGrammar {
 public:
  SchemaGrammar(const SchemaJson& root, const JsonSchemaOptions& options, Notation notation = Notation::json);

  /// The name of the rule for the schema that stands at `where`.
  std::string rule(const SchemaJson& schema, const std::string& where);
  /// The expression of a call's arguments in brackets, in Python: (key=value, ...). The schema must be of an object,
  /// not of alternatives.
  std::string call_arguments(const SchemaJson& schema, const std::string& where);
  /// All rules so far, one a line.
  std::string text() const;
  /// Adds `root`.
  void set_root(const std::string& rule) { add("root", rule, false); }

  // Rules for any value of a kind.
  std::string any_value();
  std::string any_object();

 private:
  std::string body(const SchemaJson& flat, const std::string& where);
  /// Without the keywords that cannot be kept, where loosening is allowed; else they are an error.
  SchemaJson kept_keywords(const SchemaJson& flat, const std::string& where) const;
  std::string whole_rule(const SchemaJson& schema, const std::string& where);
  bool allows_nothing(const SchemaJson& schema, const std::string& where) const;
  /// The rule for what cannot be understood.
  std::string loose_rule(const SchemaJson& schema);
  bool loosens() const { return options_.loosened != nullptr; }
  /// Notes what is left out, or throws the sentence as an error where loosening is not allowed.
  template <typename... Args>
  void leave_out(std::string_view what, const std::string& where, fmt::format_string<Args...> otherwise,
                 Args&&... args) const {
    if (!loosens()) usage_error(otherwise, std::forward<Args>(args)...);
    note(what, where);
  }
  void note(std::string_view what, const std::string& where) const;
  std::string alternatives(const SchemaJson& flat, const char* word, const std::string& where);
  std::string values(const SchemaJson& flat, const std::string& where) const;
  bool suits(const SchemaJson& value, const SchemaJson& flat, const std::string& where) const;
  std::set<std::string> types(const SchemaJson& flat, const std::string& where) const;

  // schema_object.cpp
  struct Property {
    std::string name;
    std::string pair;  ///< expression: key, colon, value; empty: there may be no such property
    bool required = false;
  };
  std::string object(const SchemaJson& flat, const std::string& where, bool call = false);
  std::vector<Property> properties(const SchemaJson& flat, const std::string& where, bool call);
  std::string others(const SchemaJson& flat, const std::vector<Property>& properties, const std::string& where,
                     bool call);
  std::string key_besides(const std::vector<Property>& properties, bool bare);
  std::string pair(const std::string& key, const std::string& value);
  std::string array(const SchemaJson& flat, const std::string& where);

  // schema_scalar.cpp
  std::string string(const SchemaJson& flat, const std::string& where);
  std::string formatted(const std::string& format, bool strict) const;
  std::string number(const SchemaJson& flat, const std::string& where, bool integer);
  std::optional<DecimalBound> bound(const SchemaJson& flat, bool low, const std::string& where) const;

  std::string any_char();
  std::string any_string();
  /// Of strings that are no more than this expression.
  std::string quoted(const std::string& inside) const;
  StringForm string_form() const;
  std::string any_number(bool integer);
  std::string any_array();
  /// White space between tokens, with a space before and behind it; empty if compact.
  std::string space();

  /// A count such as minItems; `fallback` if absent.
  uint32_t count(const SchemaJson& flat, const char* word, uint32_t fallback, const std::string& where) const;
  std::string fresh_name(const std::string& where);
  std::string add(const std::string& name, const std::string& body, bool prefixed = true);

  SchemaDocument document_;
  JsonSchemaOptions options_;
  Notation notation_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::map<std::string, std::string> by_schema_;  // rules of flat schemas
  std::set<std::string> names_;
  size_t size_ = 0;
  int depth_ = 0;
};

}  // namespace moetier
