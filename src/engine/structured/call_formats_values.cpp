// Calls whose arguments have a notation of their own: Gemma 4's and LFM2's, which is Python's.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "engine/structured/call_text.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_word(char c) {
  return std::isalnum(static_cast<uint8_t>(c)) != 0 || c == '_' || c == '-' || c == '+' || c == '.';
}

/// A word that stands for a value: a number, true, False, none, ...
Read read_word(CallCursor& c, Json& out) {
  const std::string_view rest = c.rest();
  size_t n = 0;
  while (n < rest.size() && is_word(rest[n])) ++n;
  if (n == rest.size() && !c.final()) return Read::more;
  if (n == 0) return rest.empty() ? Read::more : Read::bad;
  const std::string_view word = rest.substr(0, n);
  if (word == "true" || word == "True") {
    out = true;
  } else if (word == "false" || word == "False") {
    out = false;
  } else if (word == "null" || word == "None" || word == "none") {
    out = nullptr;
  } else {
    CallCursor number(word, true);
    std::string_view json;
    if (number.json(json) != Read::good || !number.rest().empty()) return Read::bad;
    out = parse_scanned(json);
    if (!out.is_number()) return Read::bad;
  }
  c.move(n);
  return Read::good;
}

/// Gemma's values: strings between <|"|>, JSON's words and numbers, {key:value}, [value].
class GemmaReader {
 public:
  explicit GemmaReader(CallCursor& cursor) : c_(cursor) {}

  Read value(Json& out, int depth) {
    if (depth > kMostCallNesting) return Read::bad;
    c_.skip_space();
    if (c_.rest().empty()) return Read::more;
    const char first = c_.rest()[0];
    if (first == '<') {
      std::string text;
      const Read r = quoted(text);
      out = text;
      return r;
    }
    if (first == '{') return object(out, depth);
    if (first == '[') return list(out, depth);
    return read_word(c_, out);
  }

  Read object(Json& out, int depth) {
    out = Json::object();
    if (const Read r = c_.literal("{"); r != Read::good) return r;
    return items("}", [&] {
      std::string key;
      Json item;
      if (const Read r = this->key(key); r != Read::good) return r;
      c_.skip_space();
      if (const Read r = c_.literal(":"); r != Read::good) return r;
      if (const Read r = value(item, depth + 1); r != Read::good) return r;
      out[key] = item;
      return Read::good;
    });
  }

 private:
  Read quoted(std::string& out) {
    std::string_view text;
    if (const Read r = c_.literal("<|\"|>"); r != Read::good) return r;
    if (const Read r = c_.until("<|\"|>", text); r != Read::good) return r;
    out = text;
    return Read::good;
  }

  Read key(std::string& out) {
    if (c_.rest().empty()) return Read::more;
    if (c_.rest()[0] == '<') return quoted(out);
    std::string_view name;
    if (const Read r = c_.until(":", name); r != Read::good) return r;
    if (name.empty() || name.find_first_of("{}[],<>\n\"") != std::string_view::npos) return Read::bad;
    out = name;
    c_.move(size_t{0} - 1);  // the colon is the caller's
    return Read::good;
  }

  Read list(Json& out, int depth) {
    out = Json::array();
    c_.literal("[");
    return items("]", [&] {
      Json item;
      if (const Read r = value(item, depth + 1); r != Read::good) return r;
      out.push_back(item);
      return Read::good;
    });
  }

  /// Items between commas up to the closing bracket.
  template <typename Item>
  Read items(std::string_view close, const Item& item) {
    c_.skip_space();
    if (c_.rest().empty()) return Read::more;
    if (c_.literal(close) == Read::good) return Read::good;
    for (;;) {
      c_.skip_space();
      if (const Read r = item(); r != Read::good) return r;
      c_.skip_space();
      if (c_.rest().empty()) return Read::more;
      if (c_.literal(close) == Read::good) return Read::good;
      if (const Read r = c_.literal(","); r != Read::good) return r;
    }
  }

  CallCursor& c_;
};

/// Python's literals and calls with named arguments.
class PythonReader {
 public:
  explicit PythonReader(CallCursor& cursor) : c_(cursor) {}

  /// name(key=value, ...)
  Read call(std::string& name, Json& arguments) {
    std::string_view text;
    if (const Read r = c_.name(text); r != Read::good) return r;
    name = text;
    arguments = Json::object();
    c_.skip_space();
    if (const Read r = c_.literal("("); r != Read::good) return r;
    return items(")", [&] {
      std::string_view key;
      Json item;
      if (const Read r = identifier(key); r != Read::good) return r;
      c_.skip_space();
      if (const Read r = c_.literal("="); r != Read::good) return r;
      if (const Read r = value(item, 0); r != Read::good) return r;
      arguments[std::string(key)] = item;
      return Read::good;
    });
  }

  /// Items between commas up to the closing bracket; a comma may come last.
  template <typename Item>
  Read items(std::string_view close, const Item& item) {
    for (;;) {
      c_.skip_space();
      if (c_.rest().empty()) return Read::more;
      if (c_.literal(close) == Read::good) return Read::good;
      if (const Read r = item(); r != Read::good) return r;
      c_.skip_space();
      if (c_.rest().empty()) return Read::more;
      if (c_.literal(close) == Read::good) return Read::good;
      if (const Read r = c_.literal(","); r != Read::good) return r;
    }
  }

 private:
  Read value(Json& out, int depth) {
    if (depth > kMostCallNesting) return Read::bad;
    c_.skip_space();
    if (c_.rest().empty()) return Read::more;
    const char first = c_.rest()[0];
    if (first == '"' || first == '\'') {
      std::string text;
      const Read r = string(text);
      out = text;
      return r;
    }
    if (first == '[' || first == '(') {
      c_.move(1);
      out = Json::array();
      return items(first == '[' ? "]" : ")", [&] {
        Json item;
        if (const Read r = value(item, depth + 1); r != Read::good) return r;
        out.push_back(item);
        return Read::good;
      });
    }
    if (first != '{') return read_word(c_, out);
    c_.move(1);
    out = Json::object();
    return items("}", [&] {
      std::string key;
      Json item;
      if (const Read r = string(key); r != Read::good) return r;
      c_.skip_space();
      if (const Read r = c_.literal(":"); r != Read::good) return r;
      if (const Read r = value(item, depth + 1); r != Read::good) return r;
      out[key] = item;
      return Read::good;
    });
  }

  Read identifier(std::string_view& out) {
    const std::string_view rest = c_.rest();
    size_t n = 0;
    while (n < rest.size() && (std::isalnum(static_cast<uint8_t>(rest[n])) != 0 || rest[n] == '_')) ++n;
    if (n == rest.size()) return Read::more;
    if (n == 0) return Read::bad;
    out = rest.substr(0, n);
    c_.move(n);
    return Read::good;
  }

  Read string(std::string& out) {
    const std::string_view rest = c_.rest();
    if (rest.empty()) return Read::more;
    const char quote = rest[0];
    if (quote != '"' && quote != '\'') return Read::bad;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == quote) {
        c_.move(i + 1);
        return Read::good;
      }
      if (rest[i] == '\n') return Read::bad;
      if (rest[i] != '\\') {
        out += rest[i];
        continue;
      }
      if (const Read r = escape(rest, i, out); r != Read::good) return r;
    }
    return Read::more;
  }

  /// At the backslash; leaves `i` at the escape's last byte.
  static Read escape(std::string_view rest, size_t& i, std::string& out) {
    if (++i >= rest.size()) return Read::more;
    const char c = rest[i];
    constexpr std::string_view kLetters = "ntrbfav0", kMeant{"\n\t\r\b\f\a\v\0", 8};
    const size_t known = kLetters.find(c);
    if (known != std::string_view::npos) {
      out += kMeant[known];
      return Read::good;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (c != '\\' && c != '\'' && c != '"') out += '\\';  // as Python leaves what it does not know
      out += c;
      return Read::good;
    }
    const std::string_view hex = rest.substr(i + 1, digits);
    uint32_t code = 0;
    const auto [end, status] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (status != std::errc() ? !hex.empty() : end != hex.data() + hex.size()) return Read::bad;
    if (hex.size() < digits) return Read::more;
    i += digits;
    append_utf8(out, code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? U'\uFFFD' : static_cast<char32_t>(code));
    return Read::good;
  }

  CallCursor& c_;
};

}  // namespace

Read read_gemma(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<|tool_call>"); r != Read::good) return r;
  c.skip_space();
  if (const Read r = c.literal("call:"); r != Read::good) return r;
  std::string_view name;
  if (const Read r = c.name(name); r != Read::good) return r;
  // A name has no colon here but may: "call:ns:name". What follows it is the brace.
  Json arguments;
  if (const Read r = GemmaReader(c).object(arguments, 0); r != Read::good) return r;
  c.skip_space();
  if (const Read r = c.closing("<tool_call|>"); r != Read::good) return r;
  calls.push_back({{std::string(name), dumped(arguments), ""}, c.at()});
  return Read::good;
}

namespace {

/// The rest of a list behind its bracket: calls as Python writes them, or JSON objects.
Read read_call_list(CallCursor& c, std::vector<FoundCall>& found) {
  PythonReader reader(c);
  c.skip_space();
  if (c.rest().empty()) return Read::more;
  const bool json = c.rest().starts_with('{');
  const Read all = reader.items("]", [&] {
    std::string name;
    Json arguments;
    if (json) {
      std::string_view object;
      if (const Read r = c.json(object); r != Read::good) return r;
      return add_call_object(object, c.at(), found);
    }
    if (const Read r = reader.call(name, arguments); r != Read::good) return r;
    found.push_back({{name, dumped(arguments), ""}, c.at()});
    return Read::good;
  });
  return all == Read::good && found.empty() ? Read::bad : all;
}

}  // namespace

Read read_lfm2(CallCursor& c, const ToolTypes&, std::vector<FoundCall>& calls) {
  if (const Read r = c.literal("<|tool_call_start|>"); r != Read::good) return r;
  c.skip_space();
  if (const Read r = c.literal("["); r != Read::good) return r;
  std::vector<FoundCall> found;
  if (const Read r = read_call_list(c, found); r != Read::good) return r;
  c.skip_space();
  if (const Read r = c.closing("<|tool_call_end|>"); r != Read::good) return r;
  found.back().end = c.at();
  calls = std::move(found);
  return Read::good;
}

Read read_llama4(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls) {
  const bool marked = c.rest().starts_with('<');
  if (marked) {
    if (const Read r = c.literal("<|python_start|>"); r != Read::good) return r;
    c.skip_space();
    if (c.rest().empty()) return Read::more;
  }
  std::vector<FoundCall> found;
  if (c.rest().starts_with('{')) {
    std::string_view object;
    if (const Read r = c.json(object); r != Read::good) return r;
    if (const Read r = add_call_object(object, c.at(), found); r != Read::good) return r;
  } else {
    if (const Read r = c.literal("["); r != Read::good) return r;
    if (const Read r = read_call_list(c, found); r != Read::good) return r;
  }
  // An answer may look like a call: without a mark only the tools that there are make it one.
  for (const FoundCall& f : found) {
    if (!marked && !types.empty() && !types.knows(f.call.name)) return Read::bad;
  }
  if (marked) {
    c.skip_space();
    if (const Read r = c.closing("<|python_end|>"); r != Read::good) return r;
  }
  found.back().end = c.at();
  calls = std::move(found);
  return Read::good;
}

}  // namespace moetier
