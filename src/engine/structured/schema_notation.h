// Notations in which documents of a schema are written, beside JSON: those of tool calls.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetier {

enum class Notation : uint8_t {
  json,
  gemma,   ///< Gemma 4's: strings as they are between <|"|>, bare keys
  python,  ///< Python's literals
};

/// What stands around Gemma's strings.
inline constexpr std::string_view kGemmaQuote = "<|\"|>";

/// A value as text; nullopt where the notation cannot write it (a string that holds Gemma's quote).
std::optional<std::string> written(const nlohmann::ordered_json& value, Notation notation);

/// A key of an object with what follows it, or of a call's arguments in Python (`call`); nullopt where it cannot be
/// written.
std::optional<std::string> written_key(const std::string& name, Notation notation, bool call);

/// Expression of a word of JSON (null, true, false): in Python, either language's.
std::string json_word(std::string_view json, Notation notation);

/// Rules (name, body) for text in which `marker` does not occur; the first is the whole.
std::vector<std::pair<std::string, std::string>> text_without(std::string_view marker, const std::string& base);

}  // namespace moetier
