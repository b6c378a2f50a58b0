#include "engine/structured/schema_notation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "engine/structured/gbnf_text.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> gemma_string(const std::string& text) {
  if (text.find(kGemmaQuote) != std::string::npos) return std::nullopt;
  return fmt::format("{}{}{}", kGemmaQuote, text, kGemmaQuote);
}

/// Whether Gemma's key may stand bare: what cannot be mistaken for anything else.
bool is_bare_key(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<uint8_t>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '$';
  });
}

bool is_identifier(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<uint8_t>(name[0])) == 0 &&
         std::ranges::all_of(name, [](char c) { return std::isalnum(static_cast<uint8_t>(c)) != 0 || c == '_'; });
}

}  // namespace

std::optional<std::string> written(const Json& value, Notation notation) {
  if (notation == Notation::json) return dumped(value);
  if (value.is_string()) return notation == Notation::gemma ? gemma_string(value.get<std::string>()) : dumped(value);
  if (value.is_structured()) {
    std::vector<std::string> items;
    for (const auto& [key, item] : value.items()) {
      const auto text = written(item, notation);
      const auto name = value.is_object() ? written_key(key, notation, false) : std::string();
      if (!text || !name) return std::nullopt;
      items.push_back(*name + *text);
    }
    const char* const between = notation == Notation::python ? ", " : ",";
    return fmt::format("{}{}{}", value.is_object() ? "{" : "[", fmt::join(items, between),
                       value.is_object() ? "}" : "]");
  }
  if (notation == Notation::python && value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (notation == Notation::python && value.is_null()) return "None";
  return dumped(value);
}

std::optional<std::string> written_key(const std::string& name, Notation notation, bool call) {
  if (notation == Notation::python && call) {
    if (!is_identifier(name)) return std::nullopt;
    return name + "=";
  }
  if (notation == Notation::python) return dumped(name) + ": ";
  if (notation == Notation::json) return dumped(name) + ":";
  if (is_bare_key(name)) return name + ":";
  const auto quoted = gemma_string(name);
  if (!quoted) return std::nullopt;
  return *quoted + ":";
}

std::string json_word(std::string_view json, Notation notation) {
  if (notation != Notation::python) return gbnf::literal(json);
  const char* const python = json == "null" ? "None" : json == "true" ? "True" : "False";
  return fmt::format("({} | {})", gbnf::literal(python), gbnf::literal(json));
}

std::vector<std::pair<std::string, std::string>> text_without(std::string_view marker, const std::string& base) {
  std::u32string m;
  for (size_t at = 0; at < marker.size(); at += utf8_at(marker, at).bytes) m += utf8_at(marker, at).code;
  // Knuth, Morris and Pratt's automaton: state i has read the first i characters of the marker.
  const auto next = [&](size_t state, char32_t c) {
    std::u32string read = m.substr(0, state) + c;
    while (!read.empty() && m.compare(0, read.size(), read) != 0) read.erase(0, 1);
    return read.size();
  };
  std::u32string letters = m;
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  CharSet known_letters;
  for (const char32_t c : letters) known_letters.add(c, c);
  known_letters.normalize();
  std::vector<std::pair<std::string, std::string>> rules;
  for (size_t state = 0; state < m.size(); ++state) {
    std::string body = fmt::format("\"\" | {} {}0", gbnf::char_class(known_letters.complement()), base);
    for (const char32_t c : letters) {
      const size_t to = next(state, c);
      CharSet one;
      one.add(c, c);
      if (to < m.size()) body += fmt::format(" | {} {}{}", gbnf::char_class(one), base, to);
    }
    rules.emplace_back(base + std::to_string(state), body);
  }
  return rules;
}

}  // namespace moetier
