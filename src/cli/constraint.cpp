#include "cli/constraint.h"

#include "base/error.h"
#include "cli/support.h"
#include "engine/grammar.h"
#include "engine/json_schema.h"

namespace moetier::cli {

namespace {

/// What is wrong with a schema is wrong usage, be it the JSON or what it says.
nlohmann::ordered_json parse_schema(const std::string& text) {
  try {
    return parse_json(text, "the schema");
  } catch (const Error& error) {
    usage_error("{}", error.what());
  }
}

}  // namespace

std::unique_ptr<TokenConstraint> make_constraint(const Settings& settings, const Tokenizer& tokenizer) {
  std::string_view given;
  for (const std::string_view flag : {"grammar", "grammar-file", "json-schema", "json-schema-file"}) {
    if (!settings.is_set(flag)) continue;
    if (!given.empty()) usage_error("--{} and --{} exclude each other", given, flag);
    given = flag;
  }
  if (given.empty()) return nullptr;
  std::string text = given.ends_with("-file") ? read_input(settings.text(given)) : settings.text(given);
  if (given.starts_with("json-schema")) text = json_schema_grammar(parse_schema(text));
  const auto find = [&](std::string_view token) { return tokenizer.find(token); };
  return make_grammar_constraint(Grammar::compile(text, {}, find), GrammarVocabulary::make(tokenizer));
}

}  // namespace moetier::cli
