// Objects and arrays of JSON schemas.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/structured/gbnf_text.h"
#include "engine/structured/grammar_program.h"
#include "engine/structured/schema_grammar.h"
#include "tokenizer/utf8.h"

namespace moetier {

std::string SchemaGrammar::any_value() {
  const std::string name = options_.prefix + "value";
  if (names_.contains(name)) return name;
  names_.insert(name);
  const std::string body =
      fmt::format("{} | {} | {} | {} | {} | {} | {}", any_object(), any_array(), any_string(), any_number(false),
                  json_word("true", notation_), json_word("false", notation_), json_word("null", notation_));
  return add(name, body, false);
}

std::string SchemaGrammar::any_object() {
  const std::string name = options_.prefix + "object";
  if (names_.contains(name)) return name;
  names_.insert(name);
  const std::string item = pair(notation_ == Notation::gemma ? key_besides({}, true) : any_string(), any_value());
  return add(name, fmt::format("\"{{\"{}({}({}\",\"{}{})*{})? \"}}\"", space(), item, space(), space(), item, space()),
             false);
}

std::string SchemaGrammar::any_array() {
  const std::string name = options_.prefix + "array";
  if (names_.contains(name)) return name;
  names_.insert(name);
  const std::string value = any_value();
  return add(name, fmt::format("\"[\"{}({}({}\",\"{}{})*{})? \"]\"", space(), value, space(), space(), value, space()),
             false);
}

/// A key as it is written, a colon and a value.
std::string SchemaGrammar::pair(const std::string& key, const std::string& value) {
  return fmt::format("{}{}\":\"{}{}", key, space(), space(), value);
}

std::vector<SchemaGrammar::Property> SchemaGrammar::properties(const SchemaJson& flat, const std::string& where,
                                                               bool call) {
  std::vector<Property> out;
  SchemaJson all = SchemaJson::object();
  if (flat.contains("properties")) {
    if (!flat["properties"].is_object()) usage_error("properties at {} is not an object", where);
    all = flat["properties"];
  }
  std::set<std::string> required;
  if (flat.contains("required") && !flat["required"].is_boolean()) {
    if (!flat["required"].is_array()) usage_error("required at {} is not a list", where);
    for (const auto& name : flat["required"]) {
      if (!name.is_string()) usage_error("required at {} lists what is not a name", where);
      required.insert(name.get<std::string>());
      // One that has no schema of its own has that of the additional ones.
      if (all.contains(name.get<std::string>())) continue;
      if (flat.contains("additionalProperties") && flat["additionalProperties"] == false) {
        impossible_schema("the schema at {} requires the property '{}' and allows no such one", where,
                          name.get<std::string>());
      }
      all[name.get<std::string>()] =
          flat.contains("additionalProperties") ? flat["additionalProperties"] : SchemaJson(true);
    }
  }
  for (const auto& [name, schema] : all.items()) {
    const std::string place = where + "/properties/" + name;
    const bool needed = required.contains(name);
    if (allows_nothing(schema, place)) {
      if (needed) impossible_schema("the schema at {} allows nothing, and the property is required", place);
      out.push_back({name, "", false});
      continue;
    }
    auto key = written_key(name, notation_, call);
    if (!key) {
      if (needed) usage_error("the property '{}' at {} has a name that this format of calls cannot write", name, where);
      out.push_back({name, "", false});
      continue;
    }
    if (call) {
      out.push_back({name, fmt::format("{} {}", gbnf::literal(*key), rule(schema, place)), needed});
      continue;
    }
    key->resize(key->rfind(':'));
    out.push_back({name, pair(gbnf::literal(*key), rule(schema, place)), needed});
  }
  return out;
}

/// A key that is none of the properties', written without escapes (so that it cannot be one of them in disguise).
/// `bare`: a word of letters, digits and underscores, without quotes.
std::string SchemaGrammar::key_besides(const std::vector<Property>& properties, bool bare) {
  // One rule for each proper beginning of a name.
  std::map<std::u32string, std::set<char32_t>> next{{U"", {}}};
  std::set<std::u32string> names;
  const auto is_word = [](char32_t c) {
    return c == U'_' || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9');
  };
  CharSet outside;  // characters that no such key has
  if (bare) {
    for (const auto& [from, to] : {std::pair{U'a', U'z'}, {U'A', U'Z'}, {U'0', U'9'}, {U'_', U'_'}})
      outside.add(from, to);
    outside.normalize();
    outside = outside.complement();
    names.insert(U"");  // no key is empty
  } else {
    for (const char32_t code : {U'"', U'\\', U'\u007F'}) outside.add(code, code);
    outside.add(0, 0x1F);
    outside.normalize();
  }
  for (const Property& p : properties) {
    const std::string_view text = p.name;
    if (bare && !std::all_of(text.begin(), text.end(), [&](char c) { return is_word(static_cast<uint8_t>(c)); }))
      continue;
    std::u32string name;
    for (size_t at = 0; at < p.name.size();) {
      const Utf8Char c = utf8_at(p.name, at);
      const char32_t code = c.kind == Utf8Char::Kind::valid ? c.code : U'\uFFFD';
      next[name].insert(code);
      name += code;
      at += c.bytes;
    }
    next[name];
    names.insert(name);
  }
  std::map<std::u32string, std::string> rules;
  for (auto at = next.rbegin(); at != next.rend(); ++at) {  // longer ones first
    CharSet taken = outside;
    const CharSet none = outside.complement();
    std::string body;
    for (const char32_t code : at->second) {
      std::string text;
      append_utf8(text, code);
      body += fmt::format("{} {} | ", gbnf::literal(text), rules.at(at->first + code));
      taken.add(code, code);
    }
    taken.normalize();
    body += fmt::format("{} {}*", gbnf::char_class(taken.complement()), gbnf::char_class(none));
    if (!names.contains(at->first)) body += " | \"\"";
    rules[at->first] = add(fresh_name("key"), body, false);
  }
  return bare ? rules.at(U"") : fmt::format("\"\\\"\" {} \"\\\"\"", rules.at(U""));
}

/// The expression of one additional property; empty if there can be none.
std::string SchemaGrammar::others(const SchemaJson& flat, const std::vector<Property>& properties,
                                  const std::string& where, bool call) {
  const bool open = !flat.contains("properties") && !flat.contains("required");
  SchemaJson schema = open;
  if (flat.contains("additionalProperties")) schema = flat["additionalProperties"];
  if (schema == false || allows_nothing(schema, where + "/additionalProperties")) return "";
  const bool bare = call || notation_ == Notation::gemma;
  const std::string key = properties.empty() && !bare ? any_string() : key_besides(properties, bare);
  const std::string value = rule(schema, where + "/additionalProperties");
  return call ? fmt::format("{} \"=\" {}", key, value) : pair(key, value);
}

std::string SchemaGrammar::call_arguments(const SchemaJson& schema, const std::string& where) {
  SchemaJson flat = document_.flat(schema, where);
  if (flat == false) impossible_schema("the schema at {} allows nothing", where);
  if (flat == true) return call_arguments(SchemaJson{{"type", "object"}}, where);
  flat = kept_keywords(flat, where);
  for (const char* keyword : {"anyOf", "oneOf", "const", "enum"}) {
    if (flat.contains(keyword))
      usage_error("the schema has '{}' at {}, but this format's calls name arguments one by one", keyword, where);
  }
  if (!types(flat, where).contains("object")) impossible_schema("the schema at {} allows no object", where);
  return object(flat, where, true);
}

std::string SchemaGrammar::object(const SchemaJson& flat, const std::string& where, bool call) {
  std::vector<Property> all = properties(flat, where, call);
  const std::string other = others(flat, all, where, call);
  std::erase_if(all, [](const Property& p) { return p.pair.empty(); });
  const auto required =
      static_cast<uint32_t>(std::count_if(all.begin(), all.end(), [](const Property& p) { return p.required; }));
  if (count(flat, "minProperties", 0, where) > required) {
    leave_out("minProperties", where,
              "the schema asks for 'minProperties' at {}, which no grammar here can keep; list them as required",
              where);
  }
  if ((!other.empty() && count(flat, "maxProperties", kUnbounded, where) != kUnbounded) ||
      count(flat, "maxProperties", kUnbounded, where) < all.size()) {
    leave_out("maxProperties", where, "the schema asks for 'maxProperties' at {}, which no grammar here can keep",
              where);
  }
  // What may follow a property, by the next one that may come; from the last one back.
  const std::string comma = space() + "\",\"" + space();
  std::vector<std::string> rest(all.size() + 1);
  if (!other.empty()) rest[all.size()] = add(fresh_name("rest"), fmt::format("({}{})*", comma, other), false);
  const auto followed = [](const std::string& a, const std::string& b) { return b.empty() ? a : a + " " + b; };
  for (size_t i = all.size(); i-- > 1;) {
    const std::string item = fmt::format("({}{}){}", comma, all[i].pair, all[i].required ? "" : "?");
    rest[i] = add(fresh_name("rest"), followed(item, rest[i + 1]), false);
  }
  // The first one to come may be any up to the first that is required.
  std::vector<std::string> ways;
  bool must = false;
  for (size_t i = 0; i < all.size() && !must; ++i) {
    ways.push_back(followed(all[i].pair, rest[i + 1]));
    must = all[i].required;
  }
  if (!must && !other.empty()) ways.push_back(followed(other, rest[all.size()]));
  const char *const open = call ? "\"(\"" : "\"{\"", *const close = call ? "\")\"" : "\"}\"";
  if (ways.empty()) return fmt::format("{}{}{}", open, space(), close);
  return fmt::format("{}{}(({}){}){} {}", open, space(), fmt::join(ways, " | "), space(), must ? "" : "?", close);
}

std::string SchemaGrammar::array(const SchemaJson& flat, const std::string& where) {
  const uint32_t min = count(flat, "minItems", 0, where), max = count(flat, "maxItems", kUnbounded, where);
  if (min > max) impossible_schema("minItems at {} is more than maxItems", where);
  // The list form of `items` is the older name of prefixItems.
  SchemaJson prefix = SchemaJson::array();
  SchemaJson rest = true;
  if (flat.contains("prefixItems")) prefix = flat["prefixItems"];
  if (flat.contains("items") && flat["items"].is_array()) {
    prefix = flat["items"];
    if (flat.contains("additionalItems")) rest = flat["additionalItems"];
  } else if (flat.contains("items")) {
    rest = flat["items"];
  } else if (!prefix.empty() && min <= prefix.size()) {
    rest = false;  // as with properties: others only where they are spoken of
  }
  if (!prefix.is_array()) usage_error("prefixItems at {} is not a list", where);
  std::vector<std::string> items;
  for (size_t i = 0; i < prefix.size() && i < max; ++i) {
    const std::string place = where + "/prefixItems/" + std::to_string(i);
    if (allows_nothing(prefix[i], place)) {
      rest = false;
      break;
    }
    items.push_back(rule(prefix[i], place));
  }
  const auto fixed = static_cast<uint32_t>(items.size());
  std::string more;
  if (max > fixed && !allows_nothing(rest, where + "/items")) more = rule(rest, where + "/items");
  if (more.empty() && min > fixed) impossible_schema("minItems at {} is more than there can be items", where);
  // From the last one back: what may follow the first i items.
  const std::string comma = space() + "\",\"" + space();
  std::string tail;
  if (!more.empty()) {
    const uint32_t least = min > fixed ? min - fixed : 0, most = max == kUnbounded ? kUnbounded : max - fixed;
    if (fixed == 0) {
      const uint32_t then = most == kUnbounded ? kUnbounded : most - 1;
      tail = fmt::format("{} ({}{}){}", more, comma, more, gbnf::repetition(least > 0 ? least - 1 : 0, then));
      if (then == 0) tail = more;
      tail = fmt::format("({}{}){}", tail, space(), least > 0 ? "" : "?");
    } else {
      tail = fmt::format("({}{}){}", comma, more, gbnf::repetition(least, most));
    }
  }
  if (fixed == 0) return fmt::format("\"[\"{}{} \"]\"", space(), tail);
  std::string list = tail;
  for (uint32_t i = fixed; i-- > 0;) {
    list = fmt::format("{}{} {}", i > 0 ? comma : "", items[i], list);
    if (i + 1 > min) list = "(" + list + ")?";
    if (i > 0) list = add(fresh_name("items"), list, false);
  }
  return fmt::format("\"[\"{}{}{} \"]\"", space(), list, space());
}

}  // namespace moetier
