#include "engine/structured/call_text.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaces = " \t\r\n";

bool is_name_character(char c) {
  const auto u = static_cast<uint8_t>(c);
  return u > 0x20 && u != 0x7F && std::strchr("<>{}[]()\"'`,;=|", c) == nullptr;
}

/// Finds the end of a JSON value without making it.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text, bool final) : text_(text), final_(final) {}

  Read scan() {
    const Read r = value();
    return r;
  }
  size_t end() const { return at_; }

 private:
  bool done() const { return at_ >= text_.size(); }
  void space() {
    while (!done() && kSpaces.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  Read word(std::string_view wanted) {
    const std::string_view rest = text_.substr(at_, wanted.size());
    if (rest == wanted) {
      at_ += wanted.size();
      return Read::good;
    }
    return wanted.starts_with(rest) ? Read::more : Read::bad;
  }

  Read string() {
    ++at_;
    for (; !done(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return Read::good;
      }
      if (static_cast<uint8_t>(c) < 0x20) return Read::bad;
      if (c != '\\') continue;
      if (++at_ >= text_.size()) return Read::more;
      if (std::strchr("\"\\/bfnrtu", text_[at_]) == nullptr || text_[at_] == '\0') return Read::bad;
      if (text_[at_] != 'u') continue;
      for (int i = 0; i < 4; ++i) {
        if (++at_ >= text_.size()) return Read::more;
        if (std::isxdigit(static_cast<uint8_t>(text_[at_])) == 0) return Read::bad;
      }
    }
    return Read::more;
  }

  bool digits() {
    const size_t begin = at_;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  Read number() {
    if (text_[at_] == '-') ++at_;
    if (done()) return Read::more;
    if (text_[at_] == '0') {
      ++at_;
    } else if (!digits()) {
      return Read::bad;
    }
    if (!done() && text_[at_] == '.') {
      ++at_;
      if (done()) return Read::more;
      if (!digits()) return Read::bad;
    }
    if (!done() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!done() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (done()) return Read::more;
      if (!digits()) return Read::bad;
    }
    return done() && !final_ ? Read::more : Read::good;  // more digits may come
  }

  Read scalar() {
    switch (text_[at_]) {
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return text_[at_] == '-' || (text_[at_] >= '0' && text_[at_] <= '9') ? number() : Read::bad;
    }
  }

  /// A key and its colon.
  Read key() {
    space();
    if (done()) return Read::more;
    if (text_[at_] != '"') return Read::bad;
    if (const Read r = string(); r != Read::good) return r;
    space();
    return word(":");
  }

  Read value() {
    std::string open;  // the brackets that are
    for (;;) {
      space();
      if (done()) return Read::more;
      const char c = text_[at_];
      bool begun = false;
      if (c == '{' || c == '[') {
        if (open.size() >= kMostCallNesting) return Read::bad;
        open += c;
        ++at_;
        space();
        if (done()) return Read::more;
        begun = text_[at_] != (c == '{' ? '}' : ']');
        if (begun) {
          if (c == '{') {
            if (const Read r = key(); r != Read::good) return r;
          }
          continue;
        }
      } else if (const Read r = scalar(); r != Read::good) {
        return r;
      }
      // Behind a value: close brackets, or go on with the next item.
      for (;;) {
        if (open.empty()) return Read::good;
        space();
        if (done()) return Read::more;
        if (text_[at_] == (open.back() == '{' ? '}' : ']')) {
          open.pop_back();
          ++at_;
          continue;
        }
        if (text_[at_] != ',') return Read::bad;
        ++at_;
        if (open.back() == '{') {
          if (const Read r = key(); r != Read::good) return r;
        }
        break;
      }
    }
  }

  std::string_view text_;
  bool final_;
  size_t at_ = 0;
};

/// The types that a property's schema names, as JSON calls them; empty for any.
std::set<std::string> schema_types(const Json& schema, int depth) {
  std::set<std::string> out;
  if (!schema.is_object() || depth > 8) return out;
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    if (type.is_string()) out.insert(type.get<std::string>());
    if (type.is_array()) {
      for (const auto& t : type) {
        if (t.is_string()) out.insert(t.get<std::string>());
      }
    }
  }
  for (const char* word : {"enum", "anyOf", "oneOf"}) {
    if (!out.empty() || !schema.contains(word) || !schema[word].is_array()) continue;
    for (const auto& part : schema[word]) {
      if (std::strcmp(word, "enum") == 0) {
        out.insert(part.is_string() ? "string" : part.is_boolean() ? "boolean" : part.is_number() ? "number" : "any");
      } else {
        out.merge(schema_types(part, depth + 1));
      }
    }
  }
  return out;
}

}  // namespace

void CallCursor::skip_space() {
  while (at_ < text_.size() && kSpaces.find(text_[at_]) != std::string_view::npos) ++at_;
}

Read CallCursor::literal(std::string_view wanted) {
  const std::string_view there = rest().substr(0, wanted.size());
  if (there == wanted) {
    at_ += wanted.size();
    return Read::good;
  }
  return wanted.starts_with(there) ? Read::more : Read::bad;
}

Read CallCursor::closing(std::string_view wanted) {
  const Read r = literal(wanted);
  if (r != Read::more || !final_) return r;
  at_ = text_.size();
  return Read::good;
}

Read CallCursor::until(std::string_view marker, std::string_view& out) {
  const size_t end = text_.find(marker, at_);
  if (end == std::string_view::npos) return Read::more;
  out = text_.substr(at_, end - at_);
  at_ = end + marker.size();
  return Read::good;
}

Read CallCursor::json(std::string_view& out) {
  skip_space();
  JsonScanner scanner(rest(), final_);
  const Read r = scanner.scan();
  if (r != Read::good) return r;
  out = text_.substr(at_, scanner.end());
  at_ += scanner.end();
  return Read::good;
}

Read CallCursor::name(std::string_view& out) {
  constexpr size_t kLongest = 256;
  const size_t begin = at_;
  size_t end = at_;
  while (end < text_.size() && is_name_character(text_[end])) ++end;
  if (end - begin > kLongest || (end == begin && end < text_.size())) return Read::bad;
  if (end == text_.size()) return Read::more;
  out = text_.substr(begin, end - begin);
  at_ = end;
  return Read::good;
}

ToolTypes::ToolTypes(const Json& tool_list) {
  if (!tool_list.is_array()) return;
  for (const Json& entry : tool_list) {
    const Json& tool = entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string()) continue;
    auto& parameters = tools_[tool["name"].get<std::string>()];
    for (const char* word : {"parameters", "input_schema"}) {
      if (!tool.contains(word) || !tool[word].is_object() || !tool[word].contains("properties")) continue;
      const Json& properties = tool[word]["properties"];
      if (!properties.is_object()) continue;
      for (const auto& [name, schema] : properties.items()) parameters[name] = schema_types(schema, 0);
    }
  }
}

bool ToolTypes::may_begin(std::string_view name) const {
  const auto at = tools_.lower_bound(name);
  return at != tools_.end() && at->first.starts_with(name);
}

Json ToolTypes::value(std::string_view tool, const std::string& parameter, std::string_view text) const {
  std::set<std::string> types;
  const auto found = tools_.find(tool);
  if (found != tools_.end()) {
    const auto known = found->second.find(parameter);
    if (known != found->second.end()) types = known->second;
  }
  Json as_text = std::string(text);
  if (types.size() == 1 && types.contains("string")) return as_text;
  CallCursor c(text, true);
  std::string_view json;
  bool whole = c.json(json) == Read::good;
  c.skip_space();
  whole = whole && c.rest().empty();
  Json parsed = whole ? parse_scanned(json) : Json();
  if (!whole && types.contains("boolean") && (text == "True" || text == "False")) return text == "True";
  if (!whole && types.contains("null") && text == "None") return nullptr;
  if (!whole || parsed.is_discarded()) return as_text;
  if (!types.contains("string")) return parsed;
  // Either would do: what the schema names beside the string.
  const char* const type = parsed.is_boolean()  ? "boolean"
                           : parsed.is_object() ? "object"
                           : parsed.is_array()  ? "array"
                           : parsed.is_null()   ? "null"
                           : parsed.is_string() ? ""
                                                : "number";
  const bool fits = types.contains(type) || (parsed.is_number_integer() && types.contains("integer"));
  return fits ? parsed : as_text;
}

Read section_end(CallCursor& c, std::string_view close, std::vector<FoundCall>& calls) {
  c.skip_space();
  if (calls.empty()) return Read::bad;
  const Read r = c.closing(close);
  if (r == Read::good) calls.back().end = c.at();
  return r;
}

Json parse_scanned(std::string_view json) {
  return Json::parse(json, nullptr, false);
}

Read add_json_call(std::string_view name, std::string_view arguments, size_t end, std::vector<FoundCall>& calls) {
  Json parsed = parse_scanned(arguments);
  std::string text(arguments);
  if (parsed.is_string()) {  // JSON inside of JSON, as some models write it
    text = parsed.get<std::string>();
    CallCursor c(text, true);
    std::string_view inside;
    if (c.json(inside) != Read::good) return Read::bad;
    c.skip_space();
    if (!c.rest().empty()) return Read::bad;
    parsed = parse_scanned(inside);
  }
  if (name.empty() || !parsed.is_object()) return Read::bad;
  calls.push_back({{std::string(name), text, ""}, end});
  return Read::good;
}

Read add_call_object(std::string_view object, size_t end, std::vector<FoundCall>& calls) {
  const Json parsed = parse_scanned(object);
  if (!parsed.is_object() || !parsed.contains("name") || !parsed["name"].is_string()) return Read::bad;
  const std::string name = parsed["name"].get<std::string>();
  for (const char* word : {"arguments", "parameters"}) {
    if (parsed.contains(word))
      return add_json_call(name, parsed[word].dump(-1, ' ', false, Json::error_handler_t::replace), end, calls);
  }
  return Read::bad;
}

}  // namespace moetier
