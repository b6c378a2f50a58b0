// Strings and numbers of JSON schemas.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/structured/gbnf_text.h"
#include "engine/structured/grammar_program.h"
#include "engine/structured/schema_grammar.h"

namespace moetier {
namespace {

/// A format that strings are held to.
struct Format {
  const char* name;
  bool strict;          ///< the document is wrong without it; else only a hint, which lengths and patterns go before
  uint32_t min, max;    ///< lengths
  const char* grammar;  ///< without quotes; {0} is the date, {1} the time of the day
};

constexpr const char* kDate =
    R"((( [0-9]{4} "-" ("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]) ) | )"
    R"(( [0-9]{4} "-" ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30") ) | )"
    R"(( [0-9]{4} "-02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]) ) | )"
    R"(( ([0-9]{2} ("0" [48] | [2468] [048] | [13579] [26]) | ("0" [48] | [2468] [048] | [13579] [26]) "00") "-02-29" )))";
constexpr const char* kTime = R"((("0" | "1") [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? )"
                              R"(("Z" | [-+] (("0" | "1") [0-9] | "2" [0-3]) ":" [0-5] [0-9]))";
constexpr const char* kLabel = R"([a-z0-9] ([a-z0-9-]{0,20} [a-z0-9])?)";

const Format kFormats[] = {
    {"date", true, 10, 10, "{0}"},
    {"time", true, 9, 21, "{1}"},
    {"date-time", true, 20, 32, R"({0} "T" ({1}))"},
    {"uuid", true, 36, 36, R"([0-9a-fA-F]{{8}} ("-" [0-9a-fA-F]{{4}}){{3}} "-" [0-9a-fA-F]{{12}})"},
    {"duration", false, 0, 0, R"("P" ([0-9]{{1,4}} [YMWD] | "T" [0-9]{{1,4}} [HMS]))"},
    {"email", false, 0, 0,
     R"([a-zA-Z0-9] [a-zA-Z0-9_+-]{{0,30}} ("." [a-zA-Z0-9_+-]{{1,20}}){{0,3}} "@" {2} ("." {2}){{1,4}})"},
    {"hostname", false, 0, 0, R"({2} ("." {2}){{0,5}})"},
    {"ipv4", false, 0, 0, R"({3} ("." {3}){{3}})"},
    {"ipv6", false, 0, 0, R"([0-9a-fA-F]{{1,4}} (":" [0-9a-fA-F]{{1,4}}){{7}})"},
    {"uri", false, 0, 0,
     R"("http" "s"? "://" {2} ("." {2}){{0,5}} ("/" [a-zA-Z0-9._~-]{{0,40}}){{0,10}} ("?" [a-zA-Z0-9._~=&-]{{0,60}})?)"},
};
constexpr const char* kByte = R"(("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9] [0-9] | [1-9]? [0-9]))";

constexpr const char* kHex = "[0-9a-fA-F]";

}  // namespace

std::string SchemaGrammar::space() {
  if (options_.compact) return " ";
  const std::string name = options_.prefix + "ws";
  if (!names_.contains(name)) add(name, R"("" | " " | "\n" [ \t]{0,20})", false);
  return " " + name + " ";
}

/// One character inside a string. Surrogates only in pairs: half of one is no text.
std::string SchemaGrammar::any_char() {
  const std::string name = options_.prefix + "char";
  if (names_.contains(name)) return name;
  if (notation_ == Notation::gemma) return add(name, R"([^<\x00])", false);
  const std::string hex = kHex;
  // Python has no pairs of surrogates, and leaves the backslash of an escaped slash.
  if (notation_ == Notation::python)
    return add(name,
               R"([^"\\\x00-\x1F\x7F] | "\\" (["\\bfnrt] | "u" ([0-9a-cA-CefEF] )" + hex + R"({3} | [dD] [0-7] )" +
                   hex + "{2}))",
               false);
  return add(name,
             R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] )" + hex + R"({3} | [dD] [0-7] )" + hex +
                 R"({2} | [dD] [89abAB] )" + hex + R"({2} "\\u" [dD] [c-fC-F] )" + hex + "{2}))",
             false);
}

std::string SchemaGrammar::any_string() {
  const std::string name = options_.prefix + "string";
  if (names_.contains(name)) return name;
  if (notation_ == Notation::gemma) {
    std::string base = name + "-text";
    while (names_.contains(base + "-0")) base += "-";
    const auto parts = text_without(kGemmaQuote, base + "-");
    for (const auto& [part, body] : parts) add(part, body, false);
    return add(name, quoted(parts.front().first), false);
  }
  return add(name, quoted(any_char() + "*"), false);
}

StringForm SchemaGrammar::string_form() const {
  if (notation_ != Notation::gemma) return {};
  return {.quote = gbnf::literal(kGemmaQuote), .escapes = false, .never = U'<'};
}

std::string SchemaGrammar::quoted(const std::string& inside) const {
  const std::string quote = string_form().quote;
  return fmt::format("{} {} {}", quote, inside, quote);
}

std::string SchemaGrammar::any_number(bool integer) {
  const std::string name = options_.prefix + (integer ? "integer" : "number");
  if (names_.contains(name)) return name;
  // The largest has 16 digits before the point and 10^99 behind it, which every reader can hold.
  return add(name,
             integer ? R"("-"? ("0" | [1-9] [0-9]{0,15}))"
                     : R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9] [0-9]?)?)",
             false);
}

std::string SchemaGrammar::formatted(const std::string& format, bool strict) const {
  for (const Format& f : kFormats) {
    if (f.name != format || (strict && !f.strict)) continue;
    return quoted(fmt::format(fmt::runtime(f.grammar), kDate, kTime, kLabel, kByte));
  }
  return "";
}

std::string SchemaGrammar::string(const SchemaJson& flat, const std::string& where) {
  const LengthBounds bounds{count(flat, "minLength", 0, where), count(flat, "maxLength", kUnbounded, where)};
  if (bounds.min > bounds.max) impossible_schema("minLength at {} is more than maxLength", where);
  const bool lengths = flat.contains("minLength") || flat.contains("maxLength");
  const std::string format =
      flat.contains("format") && flat["format"].is_string() ? flat["format"].get<std::string>() : "";
  const std::string strict = formatted(format, true);
  if (flat.contains("pattern")) {
    if (!flat["pattern"].is_string()) usage_error("pattern at {} is not a string", where);
    if (!strict.empty()) {
      leave_out("pattern", where, "the schema has a 'pattern' beside the format '{}' at {}; leave one of them out",
                format, where);
    } else {
      try {
        return pattern_grammar(flat["pattern"].get<std::string>(), bounds, any_char(), string_form());
      } catch (const ImpossibleSchema&) {
        throw;
      } catch (const Error& e) {
        leave_out("pattern", where, "{} (at {})", e.what(), where);
      }
    }
  }
  if (!strict.empty()) {
    const auto* const f =
        std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& k) { return k.name == format; });
    if (f->min < bounds.min || f->max > bounds.max) {
      leave_out("minLength or maxLength", where, "the format '{}' at {} does not keep minLength or maxLength", format,
                where);
    }
    return strict;
  }
  if (!lengths) {
    const std::string loose = formatted(format, false);
    return loose.empty() ? any_string() : loose;
  }
  return quoted(any_char() + gbnf::repetition(bounds.min, bounds.max));
}

/// The bound that binds; nullopt for none, or one farther than any number that is written here.
std::optional<DecimalBound> SchemaGrammar::bound(const SchemaJson& flat, bool low, const std::string& where) const {
  const char* const plain = low ? "minimum" : "maximum";
  const char* const exclusive = low ? "exclusiveMinimum" : "exclusiveMaximum";
  std::optional<DecimalBound> out;
  const auto take = [&](const char* word, bool excludes) {
    const SchemaJson& value = flat[word];
    if (!value.is_number()) usage_error("{} at {} is not a number", word, where);
    const double number = value.get<double>();
    std::optional<DecimalBound> b = DecimalBound::of(value);
    if (!b || b->whole > kLargestWhole) {
      if (low ? number < -1 : number > 1) return;
      usage_error("{} at {} is a number that cannot be kept here; take one with fewer digits", word, where);
    }
    b->exclusive = excludes;
    const bool binds = !out || (low ? b->value() >= out->value() : b->value() <= out->value());
    if (binds) out = b;
  };
  // Before 2019 exclusiveMinimum was true or false and spoke of minimum.
  if (flat.contains(plain)) take(plain, flat.contains(exclusive) && flat[exclusive] == true);
  if (flat.contains(exclusive) && !flat[exclusive].is_boolean()) take(exclusive, true);
  return out;
}

std::string SchemaGrammar::number(const SchemaJson& flat, const std::string& where, bool integer) {
  if (flat.contains("multipleOf") && !(integer && flat["multipleOf"] == 1)) {
    leave_out("multipleOf", where,
              "the schema uses 'multipleOf' at {}, which no grammar here can keep; leave it out or say it otherwise",
              where);
  }
  const std::optional<DecimalBound> low = bound(flat, true, where), high = bound(flat, false, where);
  if (!low && !high) return any_number(integer);
  if (!integer) {
    const std::string range = number_range_grammar(low, high);
    if (range.empty()) impossible_schema("no number keeps minimum and maximum at {}", where);
    return range;
  }
  // The nearest whole numbers inside the bounds.
  int64_t from = -static_cast<int64_t>(kLargestWhole);
  int64_t to = static_cast<int64_t>(kLargestWhole);
  if (low) {
    const auto whole = static_cast<int64_t>(low->whole);
    from = low->negative ? -whole : whole;
    if (low->fraction.empty() ? low->exclusive : !low->negative) ++from;
  }
  if (high) {
    const auto whole = static_cast<int64_t>(high->whole);
    to = high->negative ? -whole : whole;
    if (high->fraction.empty() ? high->exclusive : high->negative) --to;
  }
  if (from > to) impossible_schema("no whole number keeps minimum and maximum at {}", where);
  return integer_range_grammar(from, to);
}

}  // namespace moetier
