#include "engine/structured/schema_merge.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace moetier {
namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostBranches = 256;
constexpr size_t kMostWork = 10'000'000;  // values looked at or copied

std::set<std::string> types_of(const SchemaJson& type) {
  std::set<std::string> out;
  if (type.is_string()) out.insert(type.get<std::string>());
  if (type.is_array()) {
    for (const auto& t : type) {
      if (t.is_string()) out.insert(t.get<std::string>());
    }
  }
  return out;
}

bool takes_type(const std::set<std::string>& types, const std::string& name) {
  return types.contains(name) || (name == "integer" && types.contains("number"));
}

std::string unescaped(std::string_view part, const std::string& reference, const std::string& where) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    const std::string_view next = part.substr(i, 2);
    if (next == "~0" || next == "~1") {
      out += next == "~0" ? '~' : '/';
      ++i;
    } else if (part[i] == '%' && i + 2 < part.size()) {
      const std::string hex(part.substr(i + 1, 2));
      if (hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        usage_error("the schema's reference '{}' at {} is malformed", reference, where);
      }
      out += static_cast<char>(std::stoi(hex, nullptr, 16));
      i += 2;
    } else {
      out += part[i];
    }
  }
  return out;
}

/// Branches of `anyOf`, of `oneOf`, or the schema itself.
std::vector<SchemaJson> branches(const SchemaJson& schema) {
  for (const char* word : {"anyOf", "oneOf"}) {
    if (schema.is_object() && schema.contains(word) && schema[word].is_array()) {
      return std::vector<SchemaJson>(schema[word].begin(), schema[word].end());
    }
  }
  return {schema};
}

double lower_bound(const SchemaJson& s) {
  double low = -INFINITY;
  for (const char* word : {"minimum", "exclusiveMinimum"}) {
    if (s.contains(word) && s[word].is_number()) low = std::max(low, s[word].get<double>());
  }
  return low;
}
double upper_bound(const SchemaJson& s) {
  double high = INFINITY;
  for (const char* word : {"maximum", "exclusiveMaximum"}) {
    if (s.contains(word) && s[word].is_number()) high = std::min(high, s[word].get<double>());
  }
  return high;
}

bool permits_others(const SchemaJson& s) {
  return s.contains("additionalProperties") ? s["additionalProperties"] != false
                                            : !s.contains("properties") && !s.contains("required");
}

bool requires_property(const SchemaJson& s, const std::string& name) {
  if (!s.contains("required") || !s["required"].is_array()) return false;
  return std::any_of(s["required"].begin(), s["required"].end(), [&](const auto& r) { return r == name; });
}

size_t count_values(const SchemaJson& json) {
  size_t n = 1;
  if (json.is_structured()) {
    for (const auto& part : json) n += count_values(part);
  }
  return n;
}

/// The values of const or enum; empty array if neither is there.
SchemaJson values_of(const SchemaJson& s) {
  if (s.contains("const")) return SchemaJson::array({s["const"]});
  if (s.contains("enum") && s["enum"].is_array()) return s["enum"];
  return SchemaJson::array();
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> known = {"title",
                                              "description",
                                              "default",
                                              "examples",
                                              "example",
                                              "$schema",
                                              "$id",
                                              "id",
                                              "$comment",
                                              "readOnly",
                                              "writeOnly",
                                              "contentMediaType",
                                              "contentEncoding",
                                              "deprecated",
                                              "$defs",
                                              "$anchor",
                                              "strict",
                                              "definitions",
                                              "$vocabulary",
                                              "$dynamicAnchor",
                                              "contentSchema",
                                              "externalDocs",
                                              "discriminator",
                                              "xml",
                                              "markdownDescription",
                                              "enumDescriptions",
                                              "enumNames",
                                              "errorMessage",
                                              "propertyOrdering",
                                              "input_examples"};
  return known.contains(keyword) || keyword.starts_with("x-");
}

std::string json_type_name(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::null:
      return "null";
    case SchemaJson::value_t::boolean:
      return "boolean";
    case SchemaJson::value_t::string:
      return "string";
    case SchemaJson::value_t::array:
      return "array";
    case SchemaJson::value_t::object:
      return "object";
    case SchemaJson::value_t::number_float: {
      const double number = value.get<double>();
      return std::isfinite(number) && number == std::floor(number) ? "integer" : "number";
    }
    default:
      return "integer";
  }
}

bool has_type(const SchemaJson& schema, const SchemaJson& value) {
  if (!schema.is_object() || !schema.contains("type")) return true;
  if (value.is_null() && schema.contains("nullable") && schema["nullable"] == true) return true;
  return takes_type(types_of(schema["type"]), json_type_name(value));
}

const SchemaJson& SchemaDocument::resolve(const std::string& reference, const std::string& where) const {
  if (!reference.starts_with('#')) {
    usage_error("the schema's reference '{}' at {} leads outside; only references that begin with '#' are followed",
                reference, where);
  }
  const SchemaJson* at = root_;
  std::string_view rest = std::string_view(reference).substr(1);
  while (!rest.empty()) {
    if (rest[0] != '/')
      usage_error("the schema's reference '{}' at {} is not a path of the form #/...", reference, where);
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = unescaped(rest.substr(0, end), reference, where);
    rest.remove_prefix(end);
    const SchemaJson* next = nullptr;
    if (at->is_object() && at->contains(part)) {
      next = &(*at)[part];
    } else if (at->is_array() && !part.empty() && part.size() < 7 &&
               part.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<size_t>(std::stoul(part));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) usage_error("the schema's reference '{}' at {} leads nowhere", reference, where);
    at = next;
  }
  return *at;
}

bool SchemaDocument::exhausted() const {
  return spent_ > kMostWork;
}

void SchemaDocument::charge(const SchemaJson& schema, const std::string& where) const {
  spent_ += count_values(schema);
  if (spent_ > kMostWork) usage_error("the schema is too entangled at {}: its parts are combined too often", where);
}

SchemaJson SchemaDocument::flat(const SchemaJson& schema, const std::string& where, int depth) const {
  charge(schema, where);
  if (depth > kMostDepth) usage_error("the schema refers to itself without end at {}", where);
  if (schema.is_boolean()) return schema;
  if (!schema.is_object()) usage_error("the schema at {} is neither an object nor true or false", where);
  SchemaJson own = schema;
  SchemaJson all = true;
  const auto take = [&](const SchemaJson& other) { all = both(all, other, where, depth + 1); };
  if (own.contains("$ref")) {
    if (!own["$ref"].is_string()) usage_error("$ref at {} is not a string", where);
    const std::string reference = own["$ref"].get<std::string>();
    own.erase("$ref");
    take(flat(resolve(reference, where), reference, depth + 1));
  }
  if (own.contains("allOf")) {
    const SchemaJson parts = own["allOf"];
    if (!parts.is_array()) usage_error("allOf at {} is not a list", where);
    own.erase("allOf");
    for (const auto& part : parts) take(flat(part, where + "/allOf", depth + 1));
  }
  if (own.contains("anyOf") && own.contains("oneOf")) {
    SchemaJson one = SchemaJson::object();
    one["oneOf"] = own["oneOf"];
    own.erase("oneOf");
    take(one);
  }
  return both(all, own, where, depth + 1);
}

SchemaJson SchemaDocument::both(const SchemaJson& a, const SchemaJson& b, const std::string& where, int depth) const {
  if (depth > kMostDepth) usage_error("the schema combines too many others at {}", where);
  charge(a, where);
  charge(b, where);
  if (a == false || b == false) return false;
  const auto says_nothing = [](const SchemaJson& s) {
    return s == true ||
           std::all_of(s.items().begin(), s.items().end(), [](const auto& i) { return is_annotation(i.key()); });
  };
  if (says_nothing(a)) return b;
  if (says_nothing(b)) return a;
  const auto has_branches = [](const SchemaJson& s) { return s.contains("anyOf") || s.contains("oneOf"); };
  if (has_branches(a) && has_branches(b)) {
    const auto strip = [](SchemaJson s) {
      s.erase("anyOf");
      s.erase("oneOf");
      return s;
    };
    if ((a.contains("oneOf") && a["oneOf"].size() > 1) || (b.contains("oneOf") && b["oneOf"].size() > 1)) {
      usage_error("the schema combines oneOf with other alternatives at {}, which is not understood; use anyOf", where);
    }
    SchemaJson all = SchemaJson::array();
    for (const auto& x : branches(a)) {
      for (const auto& y : branches(b)) {
        const SchemaJson one = both(flat(x, where, depth + 1), flat(y, where, depth + 1), where, depth + 1);
        if (one != false) all.push_back(one);
      }
    }
    if (all.size() > kMostBranches)
      usage_error("the schema combines more than {} alternatives at {}", kMostBranches, where);
    SchemaJson out = both(strip(a), strip(b), where, depth + 1);
    if (out == false || all.empty()) return false;
    if (out == true) out = SchemaJson::object();
    out["anyOf"] = all;
    return out;
  }
  SchemaJson out = a;
  const auto all_of = [](const SchemaJson& x, const SchemaJson& y) {
    if (x == y || y == true) return x;
    if (x == true) return y;
    SchemaJson s = SchemaJson::object();
    s["allOf"] = SchemaJson::array({x, y});
    return s;
  };
  // Properties that only one of them names must also suit the other's additionalProperties.
  const auto others_of = [](const SchemaJson& s) {
    return s.contains("additionalProperties") ? s["additionalProperties"] : SchemaJson(true);
  };
  SchemaJson properties = SchemaJson::object();
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->contains("properties")) continue;
    for (const auto& [name, schema] : (*one)["properties"].items()) {
      if (properties.contains(name)) continue;
      const bool shared = other->contains("properties") && (*other)["properties"].contains(name);
      properties[name] = all_of(schema, shared ? (*other)["properties"][name] : others_of(*other));
    }
  }
  for (const auto& [word, value] : b.items()) {
    if (word == "properties" || is_annotation(word)) continue;
    if (!out.contains(word)) {
      out[word] = value;
      continue;
    }
    SchemaJson& mine = out[word];
    if (mine == value) continue;
    if (word == "type") {
      const std::set<std::string> x = types_of(mine), y = types_of(value);
      std::set<std::string> common;
      for (const auto& t : x) {
        if (takes_type(y, t)) common.insert(t);
      }
      for (const auto& t : y) {
        if (takes_type(x, t)) common.insert(t);
      }
      if (common.contains("number")) common.erase("integer");
      if (common.empty()) return false;
      mine = common;
      if (common.size() == 1) mine = *common.begin();
    } else if (word == "enum") {
      SchemaJson common = SchemaJson::array();
      for (const auto& v : mine) {
        if (std::find(value.begin(), value.end(), v) != value.end()) common.push_back(v);
      }
      if (common.empty()) return false;
      mine = common;
    } else if (word == "const") {
      return false;
    } else if (word == "required") {
      for (const auto& r : value) {
        if (std::find(mine.begin(), mine.end(), r) == mine.end()) mine.push_back(r);
      }
    } else if (word == "minimum" || word == "exclusiveMinimum" || word == "minLength" || word == "minItems" ||
               word == "minProperties") {
      if (!mine.is_number() || !value.is_number()) usage_error("{} at {} is not a number", word, where);
      if (value > mine) mine = value;
    } else if (word == "maximum" || word == "exclusiveMaximum" || word == "maxLength" || word == "maxItems" ||
               word == "maxProperties") {
      if (!mine.is_number() || !value.is_number()) usage_error("{} at {} is not a number", word, where);
      if (value < mine) mine = value;
    } else if (word == "items" || word == "additionalProperties") {
      mine = mine == false || value == false ? SchemaJson(false) : all_of(mine, value);
    } else if (word == "nullable") {
      mine = false;
    } else if (word == "uniqueItems") {
      mine = true;
    } else {
      usage_error("two parts of the schema at {} say different things about {}, which cannot be combined", where, word);
    }
  }
  if (!properties.empty()) out["properties"] = properties;
  return out;
}

bool SchemaDocument::excludes(const SchemaJson& a, const SchemaJson& b, const std::string& where, int depth) const {
  if (depth > 6) return false;
  const SchemaJson x = flat(a, where), y = flat(b, where);
  if (x == false || y == false) return true;
  if (!x.is_object() || !y.is_object()) return false;
  for (const SchemaJson* one : {&x, &y}) {
    const auto ways = branches(*one);
    if (ways.size() == 1 && ways[0] == *one) continue;
    SchemaJson base = *one;
    base.erase("anyOf");
    base.erase("oneOf");
    if (std::all_of(ways.begin(), ways.end(), [&](const SchemaJson& way) {
          const SchemaJson whole = both(base, flat(way, where), where);
          return one == &x ? excludes(whole, y, where, depth + 1) : excludes(x, whole, where, depth + 1);
        })) {
      return true;
    }
  }
  const SchemaJson mine = values_of(x), theirs = values_of(y);
  if (!mine.empty() && !theirs.empty()) {
    return std::none_of(mine.begin(), mine.end(), [&](const SchemaJson& v) {
      return std::find(theirs.begin(), theirs.end(), v) != theirs.end();
    });
  }
  const auto wrong_type = [](const SchemaJson& values, const SchemaJson& schema) {
    return !values.empty() &&
           std::none_of(values.begin(), values.end(), [&](const SchemaJson& v) { return has_type(schema, v); });
  };
  if (wrong_type(mine, y) || wrong_type(theirs, x)) return true;
  if (x.contains("type") && y.contains("type") && mine.empty() && theirs.empty()) {
    const std::set<std::string> s = types_of(x["type"]), t = types_of(y["type"]);
    const bool common = std::any_of(s.begin(), s.end(), [&](const auto& n) { return takes_type(t, n); }) ||
                        std::any_of(t.begin(), t.end(), [&](const auto& n) { return takes_type(s, n); });
    if (!common) return true;
    const auto only = [](const std::set<std::string>& set, std::initializer_list<const char*> names) {
      return std::all_of(set.begin(), set.end(), [&](const std::string& n) {
        return std::any_of(names.begin(), names.end(), [&](const char* name) { return n == name; });
      });
    };
    if (only(s, {"integer", "number"}) && only(t, {"integer", "number"})) {
      return upper_bound(x) < lower_bound(y) || upper_bound(y) < lower_bound(x);
    }
    if (!only(s, {"object"}) || !only(t, {"object"})) return false;
  }
  const auto property = [](const SchemaJson& s, const std::string& name) -> const SchemaJson* {
    return s.contains("properties") && s["properties"].is_object() && s["properties"].contains(name)
               ? &s["properties"][name]
               : nullptr;
  };
  // What a document of `a` surely has not but `b` wants, or surely has but `b` forbids.
  if (y.contains("required") && y["required"].is_array() && !permits_others(x)) {
    for (const auto& name : y["required"]) {
      if (name.is_string() && property(x, name) == nullptr && !requires_property(x, name)) return true;
    }
  }
  if (x.contains("required") && x["required"].is_array()) {
    for (const auto& name : x["required"]) {
      if (!name.is_string()) continue;
      const SchemaJson* in_x = property(x, name);
      const SchemaJson* in_y = property(y, name);
      if (in_y == nullptr && y.contains("additionalProperties") && y["additionalProperties"] == false) return true;
      if (in_x != nullptr && in_y != nullptr && excludes(*in_x, *in_y, where, depth + 1)) return true;
    }
  }
  return false;
}

}  // namespace moetier
