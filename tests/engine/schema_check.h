// A plain validator of JSON schemas, written without a look at how grammars are made: tests hold documents to it.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tokenizer/utf8.h"

namespace moetier::testing_support {

class SchemaCheck {
 public:
  using Json = nlohmann::ordered_json;
  explicit SchemaCheck(const Json& root) : root_(root) {}

  /// Why the document is not valid; empty if it is.
  std::string problem(const Json& document) const { return check(root_, document, "$"); }

 private:
  static size_t length(const std::string& text) {
    size_t n = 0;
    for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    return n;
  }

  /// Its code points: a pattern counts characters. White space beyond ASCII becomes a space, since std::wregex knows of
  /// ASCII's alone and ECMAScript's \s of all.
  static std::wstring wide(const std::string& text) {
    std::wstring out;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = utf8_at(text, at);
      const bool space = c.code == 0xA0 || c.code == 0x1680 || (c.code >= 0x2000 && c.code <= 0x200A) ||
                         c.code == 0x2028 || c.code == 0x2029 || c.code == 0x202F || c.code == 0x205F ||
                         c.code == 0x3000 || c.code == 0xFEFF;
      out += space ? L' ' : static_cast<wchar_t>(c.code);
      at += c.bytes;
    }
    return out;
  }

  static bool is_type(const std::string& type, const Json& d) {
    if (type == "integer")
      return d.is_number_integer() || (d.is_number_float() && d.get<double>() == std::floor(d.get<double>()));
    if (type == "number") return d.is_number();
    if (type == "string") return d.is_string();
    if (type == "boolean") return d.is_boolean();
    if (type == "null") return d.is_null();
    return type == "object" ? d.is_object() : type == "array" && d.is_array();
  }

  static bool is_date(const std::string& t) {
    std::smatch m;
    if (!std::regex_match(t, m, std::regex("(\\d{4})-(\\d\\d)-(\\d\\d)"))) return false;
    const int y = std::stoi(m[1]), month = std::stoi(m[2]), day = std::stoi(m[3]);
    const int days[] = {31, (y % 4 == 0 && y % 100 != 0) || y % 400 == 0 ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30,
                        31};
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  }

  static bool is_time(const std::string& t) {
    return std::regex_match(
        t, std::regex("([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[-+]([01]\\d|2[0-3]):[0-5]\\d)"));
  }

  static bool is_format(const std::string& format, const std::string& t) {
    if (format == "date") return is_date(t);
    if (format == "time") return is_time(t);
    if (format == "date-time")
      return t.size() > 11 && is_date(t.substr(0, 10)) && t[10] == 'T' && is_time(t.substr(11));
    if (format == "uuid") return std::regex_match(t, std::regex("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"));
    if (format == "ipv4")
      return std::regex_match(t, std::regex("((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(?!$)|$)){4}"));
    if (format == "email") return std::regex_match(t, std::regex("[^@\\s]+@[^@\\s.]+(\\.[^@\\s.]+)+"));
    return true;
  }

  const Json& target(std::string reference) const {
    const size_t percent = reference.find("%25");
    if (percent != std::string::npos) reference.replace(percent, 3, "%");
    return root_.at(Json::json_pointer(reference.substr(1)));
  }

  std::string check(const Json& s, const Json& d, const std::string& at) const {
    if (s.is_boolean()) return s.get<bool>() ? "" : at + ": false";
    std::string why;
    const auto fail = [&](const char* word) {
      if (why.empty()) why = at + ": " + word;
    };
    const auto take = [&](const std::string& other) {
      if (why.empty()) why = other;
    };
    if (s.contains("$ref")) take(check(target(s["$ref"]), d, at));
    if (s.contains("type")) {
      const Json types = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
      bool any = s.value("nullable", false) && d.is_null();
      for (const auto& t : types) any = any || is_type(t, d);
      if (!any) fail("type");
    }
    if (s.contains("const") && s["const"] != d) fail("const");
    if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), d) == s["enum"].end()) fail("enum");
    int held = 0;
    for (const char* word : {"allOf", "anyOf", "oneOf"}) {
      if (!s.contains(word)) continue;
      held = 0;
      for (const auto& part : s[word]) held += check(part, d, at).empty();
      const int all = static_cast<int>(s[word].size());
      if (word[0] == 'o' ? held != 1 : word[1] == 'n' ? held == 0 : held != all) fail(word);
    }
    if (d.is_string()) take(check_string(s, d.get<std::string>(), at));
    if (d.is_number()) take(check_number(s, d.get<double>(), at));
    if (d.is_array()) take(check_array(s, d, at));
    if (d.is_object()) take(check_object(s, d, at));
    return why;
  }

  static std::string check_string(const Json& s, const std::string& t, const std::string& at) {
    if (s.contains("minLength") && length(t) < s["minLength"].get<size_t>()) return at + ": minLength";
    if (s.contains("maxLength") && length(t) > s["maxLength"].get<size_t>()) return at + ": maxLength";
    if (s.contains("pattern") && !std::regex_search(wide(t), std::wregex(wide(s["pattern"].get<std::string>()))))
      return at + ": pattern '" + t + "'";
    if (s.contains("format") && !is_format(s["format"], t)) return at + ": format '" + t + "'";
    return "";
  }

  static std::string check_number(const Json& s, double n, const std::string& at) {
    const auto bound = [&](const char* word) { return s[word].get<double>(); };
    const bool low_open = s.contains("exclusiveMinimum") && s["exclusiveMinimum"] == true;
    const bool high_open = s.contains("exclusiveMaximum") && s["exclusiveMaximum"] == true;
    if (s.contains("minimum") && (low_open ? n <= bound("minimum") : n < bound("minimum"))) return at + ": minimum";
    if (s.contains("maximum") && (high_open ? n >= bound("maximum") : n > bound("maximum"))) return at + ": maximum";
    if (s.contains("exclusiveMinimum") && s["exclusiveMinimum"].is_number() && n <= bound("exclusiveMinimum"))
      return at + ": exclusiveMinimum";
    if (s.contains("exclusiveMaximum") && s["exclusiveMaximum"].is_number() && n >= bound("exclusiveMaximum"))
      return at + ": exclusiveMaximum";
    return "";
  }

  std::string check_array(const Json& s, const Json& d, const std::string& at) const {
    if (s.contains("minItems") && d.size() < s["minItems"].get<size_t>()) return at + ": minItems";
    if (s.contains("maxItems") && d.size() > s["maxItems"].get<size_t>()) return at + ": maxItems";
    const bool listed = s.contains("items") && s["items"].is_array();
    const Json prefix = s.contains("prefixItems") ? s["prefixItems"] : listed ? s["items"] : Json::array();
    const Json rest = listed ? s.value("additionalItems", Json(true)) : s.value("items", Json(true));
    for (size_t i = 0; i < d.size(); ++i) {
      const std::string why = check(i < prefix.size() ? prefix[i] : rest, d[i], at + "[" + std::to_string(i) + "]");
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string check_object(const Json& s, const Json& d, const std::string& at) const {
    if (s.contains("required")) {
      for (const auto& name : s["required"]) {
        if (!d.contains(name.get<std::string>())) return at + ": required " + name.get<std::string>();
      }
    }
    const Json properties = s.value("properties", Json::object());
    for (const auto& [name, value] : d.items()) {
      const Json own = properties.contains(name) ? properties[name] : s.value("additionalProperties", Json(true));
      const std::string why = check(own, value, at + "." + name);
      if (!why.empty()) return why;
    }
    return "";
  }

  const Json root_;
};

}  // namespace moetier::testing_support
