// A grammar as the recognizer runs it: rules as flat sequences of items.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/grammar.h"
#include "engine/structured/char_set.h"

namespace moetier {

inline constexpr uint32_t kUnbounded = UINT32_MAX;

/// One symbol of a rule's alternative, repeated `min` to `max` times.
struct GrammarItem {
  enum class Kind : uint8_t {
    chars,  ///< a character; target: node of the automaton
    call,   ///< a rule; target: its number
    token,  ///< a whole token; target: its id
    other,  ///< any token but that one
    end,    ///< of the alternative
  };
  Kind kind = Kind::end;
  uint32_t target = 0;
  uint32_t min = 1, max = 1;
  bool single = false;  ///< chars: there is only one character that it takes, as in a literal
};

/// Rules as they are written, before they are checked. Groups are rules of their own.
struct GrammarDraft {
  using Alternative = std::vector<GrammarItem>;  ///< target of `chars`: index into `sets`
  struct Rule {
    std::string name;  ///< of a group: the name of the rule it stands in
    std::vector<Alternative> alternatives;
    bool defined = false;
    size_t at = 0;  ///< where the source has it first
  };
  std::vector<Rule> rules;
  std::vector<CharSet> sets;
  uint32_t root = 0;
};

/// Reads GBNF (gbnf_parser.cpp); see Grammar::compile.
GrammarDraft parse_gbnf(std::string_view source, const GrammarLimits& limits,
                        const std::function<TokenId(std::string_view)>& find_token);

struct Grammar::Impl {
  GrammarLimits limits;
  std::vector<GrammarItem> items;
  std::vector<uint32_t> starts;       ///< first items of all alternatives, rule by rule
  std::vector<uint32_t> first_start;  ///< [rule]: index into `starts`; one more at the end
  std::vector<bool> nullable;         ///< [rule]: derives the empty text
  uint32_t root = 0;
  Utf8Automaton utf8;
  bool has_tokens = false;  ///< some item asks for a whole token
};

}  // namespace moetier
