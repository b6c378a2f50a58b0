#include "engine/structured/schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/structured/gbnf_text.h"
#include "engine/structured/grammar_program.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

constexpr int kMostDepth = 200;
constexpr size_t kMostExclusive = 64;  // branches of a oneOf, which are held against one another

size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

SchemaGrammar::SchemaGrammar(const SchemaJson& root, const JsonSchemaOptions& options, Notation notation)
    : document_(root), options_(options), notation_(notation) {}

std::string SchemaGrammar::add(const std::string& name, const std::string& body, bool prefixed) {
  const std::string full = prefixed ? options_.prefix + name : name;
  size_ += full.size() + body.size() + 6;
  if (size_ > options_.max_grammar) {
    usage_error("the schema is too large: its grammar has more than {} bytes", options_.max_grammar);
  }
  rules_.emplace_back(full, body);
  names_.insert(full);
  return full;
}

std::string SchemaGrammar::text() const {
  std::string out;
  for (const auto& [name, body] : rules_) out += name + " ::= " + body + "\n";
  return out;
}

std::string SchemaGrammar::fresh_name(const std::string& where) {
  std::string base = gbnf::rule_name(where.substr(where.rfind('/') + 1));
  if (base.empty() || base == "-") base = "schema";
  std::string name = options_.prefix + base + "-0";
  for (int n = 1; names_.contains(name); ++n) name = options_.prefix + base + "-" + std::to_string(n);
  names_.insert(name);
  return name;
}

void SchemaGrammar::note(std::string_view what, const std::string& where) const {
  constexpr size_t kMost = 20;
  if (options_.loosened->size() == kMost) options_.loosened->emplace_back("more");
  if (options_.loosened->size() > kMost) return;
  std::string text = fmt::format("{} at {}", what, where);
  if (std::find(options_.loosened->begin(), options_.loosened->end(), text) == options_.loosened->end()) {
    options_.loosened->push_back(std::move(text));
  }
}

bool SchemaGrammar::allows_nothing(const SchemaJson& schema, const std::string& where) const {
  if (!loosens()) return document_.flat(schema, where) == false;
  try {
    return document_.flat(schema, where) == false;
  } catch (const Error&) {
    return false;  // its rule says what it is about
  }
}

std::string SchemaGrammar::loose_rule(const SchemaJson& schema) {
  const SchemaJson type = schema.is_object() && schema.contains("type") ? schema["type"] : SchemaJson();
  if (type == "object") return any_object();
  if (type == "array") return any_array();
  if (type == "string") return any_string();
  if (type == "integer" || type == "number") return any_number(type == "integer");
  return any_value();
}

std::string SchemaGrammar::rule(const SchemaJson& schema, const std::string& where) {
  if (!loosens()) return whole_rule(schema, where);
  const int depth = depth_;
  try {
    return whole_rule(schema, where);
  } catch (const ImpossibleSchema&) {
    throw;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage || size_ > options_.max_grammar || document_.exhausted()) throw;
    depth_ = depth;
    note(fmt::format("a part that is not understood ({})", e.what()), where);
    return loose_rule(schema);
  }
}

std::string SchemaGrammar::whole_rule(const SchemaJson& schema, const std::string& where) {
  if (++depth_ > kMostDepth) usage_error("the schema is nested more than {} deep at {}", kMostDepth, where);
  const SchemaJson flat = document_.flat(schema, where);
  if (flat == false) impossible_schema("the schema at {} allows nothing", where);
  std::string name;
  const bool free = flat == true || std::all_of(flat.items().begin(), flat.items().end(),
                                                [](const auto& i) { return is_annotation(i.key()); });
  if (free) {
    name = any_value();
  } else {
    SchemaJson key = flat;
    for (const auto& [word, value] : flat.items()) {
      if (is_annotation(word)) key.erase(word);
    }
    std::string& known = by_schema_[key.dump(-1, ' ', false, SchemaJson::error_handler_t::replace)];
    if (known.empty()) {
      name = known = fresh_name(where);  // before its body, which may refer to it
      try {
        const std::string found = body(key, where);
        add(name, found, false);
      } catch (const ImpossibleSchema&) {
        add(name, "[]", false);  // others may have named it meanwhile
        throw;
      } catch (const Error&) {
        if (loosens()) add(name, loose_rule(key), false);
        throw;
      }
    } else {
      name = known;
    }
  }
  --depth_;
  return name;
}

SchemaJson SchemaGrammar::kept_keywords(const SchemaJson& flat, const std::string& where) const {
  static const std::set<std::string> refused = {"not",
                                                "if",
                                                "then",
                                                "else",
                                                "dependentSchemas",
                                                "dependentRequired",
                                                "dependencies",
                                                "patternProperties",
                                                "propertyNames",
                                                "contains",
                                                "minContains",
                                                "maxContains",
                                                "unevaluatedItems",
                                                "$dynamicRef",
                                                "$recursiveRef"};
  SchemaJson kept = flat;
  const auto refuse = [&](const std::string& word) {
    leave_out(word, where,
              "the schema uses '{}' at {}, which no grammar here can keep; leave it out or say it otherwise", word,
              where);
    kept.erase(word);
    // Names that only a pattern allows are allowed as any other.
    if (word == "patternProperties") kept["additionalProperties"] = true;
  };
  for (const auto& [word, value] : flat.items()) {
    if (refused.contains(word)) refuse(word);
    if (word == "uniqueItems" && value != false && count(flat, "maxItems", kUnbounded, where) > 1) refuse(word);
    if (word == "unevaluatedProperties" &&
        !(value == true || (value == false && !flat.contains("additionalProperties")))) {
      refuse(word);
    }
  }
  // What hinted at the type is gone, not the type.
  if (kept.size() != flat.size() && !flat.contains("type")) {
    if (flat.contains("uniqueItems") || flat.contains("contains")) kept["type"] = "array";
    if (flat.contains("patternProperties")) kept["type"] = "object";
  }
  return kept;
}

std::string SchemaGrammar::body(const SchemaJson& said, const std::string& where) {
  const SchemaJson flat = kept_keywords(said, where);
  for (const char* word : {"anyOf", "oneOf"}) {
    if (flat.contains(word)) return alternatives(flat, word, where);
  }
  if (flat.contains("const") || flat.contains("enum")) return values(flat, where);
  std::vector<std::string> ways;
  for (const std::string& type : types(flat, where)) {
    if (type == "null") {
      ways.push_back(json_word("null", notation_));
    } else if (type == "boolean") {
      ways.push_back(json_word("true", notation_) + " | " + json_word("false", notation_));
    } else if (type == "string") {
      ways.push_back(string(flat, where));
    } else if (type == "object") {
      ways.push_back(object(flat, where));
    } else if (type == "array") {
      ways.push_back(array(flat, where));
    } else {
      ways.push_back(number(flat, where, type == "integer"));
    }
  }
  return fmt::format("{}", fmt::join(ways, " | "));
}

std::set<std::string> SchemaGrammar::types(const SchemaJson& flat, const std::string& where) const {
  std::set<std::string> out;
  if (flat.contains("type")) {
    const SchemaJson& type = flat["type"];
    const auto take = [&](const SchemaJson& t) {
      static const std::set<std::string> known = {"null", "boolean", "string", "object", "array", "number", "integer"};
      if (!t.is_string() || !known.contains(t.get<std::string>())) {
        usage_error("the schema's type at {} is none that JSON has: {}", where,
                    t.dump(-1, ' ', false, SchemaJson::error_handler_t::replace).substr(0, 100));
      }
      out.insert(t.get<std::string>());
    };
    if (type.is_array()) {
      for (const auto& t : type) take(t);
    } else {
      take(type);
    }
    if (out.contains("number")) out.erase("integer");
  } else {
    // Without a type, the keywords say which types are meant; others would be valid whatever they hold.
    static const std::map<std::string, std::string> hints = {{"properties", "object"},
                                                             {"required", "object"},
                                                             {"additionalProperties", "object"},
                                                             {"minProperties", "object"},
                                                             {"maxProperties", "object"},
                                                             {"unevaluatedProperties", "object"},
                                                             {"items", "array"},
                                                             {"prefixItems", "array"},
                                                             {"additionalItems", "array"},
                                                             {"minItems", "array"},
                                                             {"maxItems", "array"},
                                                             {"uniqueItems", "array"},
                                                             {"pattern", "string"},
                                                             {"minLength", "string"},
                                                             {"maxLength", "string"},
                                                             {"format", "string"},
                                                             {"minimum", "number"},
                                                             {"maximum", "number"},
                                                             {"exclusiveMinimum", "number"},
                                                             {"exclusiveMaximum", "number"},
                                                             {"multipleOf", "number"}};
    for (const auto& [word, value] : flat.items()) {
      const auto hint = hints.find(word);
      if (hint != hints.end()) out.insert(hint->second);
    }
    if (out.empty()) out = {"null", "boolean", "string", "object", "array", "number"};
  }
  if (flat.contains("nullable") && flat["nullable"] == true) out.insert("null");
  if (out.empty()) impossible_schema("the schema at {} allows no type", where);
  return out;
}

std::string SchemaGrammar::alternatives(const SchemaJson& flat, const char* word, const std::string& where) {
  if (!flat[word].is_array() || flat[word].empty()) usage_error("{} at {} is not a list of schemas", word, where);
  SchemaJson base = flat;
  base.erase(word);
  const std::string place = where + "/" + word;
  std::vector<SchemaJson> branches;
  for (const auto& branch : flat[word]) {
    SchemaJson one = document_.both(base.empty() ? SchemaJson(true) : base, document_.flat(branch, place), place);
    if (one != false) branches.push_back(std::move(one));
  }
  if (std::string_view(word) == "oneOf") {
    if (branches.size() > kMostExclusive)
      usage_error("oneOf at {} has more than {} alternatives; use anyOf", where, kMostExclusive);
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t j = 0; j < branches.size(); ++j) {
        if (i == j || document_.excludes(branches[i], branches[j], place)) continue;
        leave_out("oneOf (taken as anyOf)", where,
                  "the alternatives {} and {} of oneOf at {} may both hold, which a grammar cannot prevent; use anyOf",
                  std::min(i, j), std::max(i, j), where);
      }
    }
  }
  std::vector<std::string> names;
  std::string why;
  for (size_t i = 0; i < branches.size(); ++i) {
    const int depth = depth_;
    try {
      names.push_back(rule(branches[i], place + "/" + std::to_string(i)));
    } catch (const ImpossibleSchema& e) {
      depth_ = depth;
      why = e.what();
    }
  }
  if (names.empty()) {
    impossible_schema("no alternative of {} at {} allows anything{}{}", word, where, why.empty() ? "" : ": ", why);
  }
  return fmt::format("{}", fmt::join(names, " | "));
}

/// Whether a value of const or enum keeps what the schema says besides.
bool SchemaGrammar::suits(const SchemaJson& value, const SchemaJson& flat, const std::string& where) const {
  if (!has_type(flat, value)) return false;
  const std::string type = json_type_name(value);
  const auto refuse = [&](const std::string& word) {
    leave_out(word, where, "the schema has '{}' beside const or enum at {}, which is not understood", word, where);
  };
  for (const auto& [word, limit] : flat.items()) {
    if (type == "string" && word == "minLength" &&
        characters(value.get<std::string>()) < count(flat, "minLength", 0, where))
      return false;
    if (type == "string" && word == "maxLength" &&
        characters(value.get<std::string>()) > count(flat, "maxLength", 0, where))
      return false;
    if (type == "string" && word == "pattern") refuse(word);
    if (type == "object" &&
        (word == "properties" || word == "required" || word == "additionalProperties" || word.ends_with("Properties")))
      refuse(word);
    if (type == "array" && (word == "items" || word == "prefixItems" || word == "minItems" || word == "maxItems"))
      refuse(word);
    if (!value.is_number()) continue;
    if (word == "multipleOf") refuse(word);
    if (word == "minimum" && limit.is_number() && value < limit) return false;
    if (word == "maximum" && limit.is_number() && value > limit) return false;
    if (word == "exclusiveMinimum" && limit.is_number() && value <= limit) return false;
    if (word == "exclusiveMaximum" && limit.is_number() && value >= limit) return false;
  }
  return true;
}

std::string SchemaGrammar::values(const SchemaJson& flat, const std::string& where) const {
  SchemaJson all = SchemaJson::array();
  if (flat.contains("const")) {
    all.push_back(flat["const"]);
    if (flat.contains("enum") &&
        std::find(flat["enum"].begin(), flat["enum"].end(), flat["const"]) == flat["enum"].end())
      all.clear();
  } else {
    all = flat["enum"];
    if (!all.is_array()) usage_error("enum at {} is not a list", where);
  }
  std::vector<std::string> ways;
  for (const auto& value : all) {
    if (!suits(value, flat, where)) continue;
    if (const auto text = written(value, notation_)) ways.push_back(gbnf::literal(*text));
  }
  if (ways.empty()) impossible_schema("no value of const or enum at {} keeps what the schema says besides", where);
  return fmt::format("{}", fmt::join(ways, " | "));
}

uint32_t SchemaGrammar::count(const SchemaJson& flat, const char* word, uint32_t fallback,
                              const std::string& where) const {
  if (!flat.contains(word)) return fallback;
  const SchemaJson& value = flat[word];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0) || number != std::floor(number))
    usage_error("{} at {} is not a whole number of 0 or more", word, where);
  // Beyond what a grammar counts, an upper bound is none.
  constexpr double kMost = 1'000'000;
  if (number > kMost && std::string_view(word).starts_with("min"))
    usage_error("{} at {} is more than {}", word, where, kMost);
  return number > kMost ? kUnbounded : static_cast<uint32_t>(number);
}

std::string json_schema_grammar(const nlohmann::ordered_json& schema, const JsonSchemaOptions& options) {
  SchemaGrammar grammar(schema, options);
  grammar.set_root(grammar.rule(schema, "#"));
  return grammar.text();
}

std::string json_object_grammar(const JsonSchemaOptions& options) {
  const SchemaJson any = true;
  SchemaGrammar grammar(any, options);
  grammar.set_root(grammar.any_object());
  return grammar.text();
}

}  // namespace moetier
