#include "engine/structured/gbnf_text.h"

#include <fmt/format.h>

#include "engine/structured/grammar_program.h"
#include "tokenizer/utf8.h"

namespace moetier::gbnf {
namespace {

void append(std::string& out, char32_t code, std::string_view special) {
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code < 0x20 || code == 0x7F) {
    out += fmt::format("\\x{:02X}", static_cast<uint32_t>(code));
  } else if ((code > 0x7F && code < 0xA0) || (code >= 0xD7FF && code <= 0xFFFF)) {
    out += fmt::format("\\u{:04X}", static_cast<uint32_t>(code));
  } else if (code > 0xFFFF) {
    out += fmt::format("\\U{:08X}", static_cast<uint32_t>(code));
  } else {
    if (code < 0x80 && special.find(static_cast<char>(code)) != std::string_view::npos) out += '\\';
    append_utf8(out, code);
  }
}

}  // namespace

std::string literal(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    append(out, c.kind == Utf8Char::Kind::valid ? c.code : U'\uFFFD', "\"\\");
    at += c.bytes;
  }
  return out + '"';
}

std::string char_class(const CharSet& set) {
  constexpr std::string_view kSpecial = "[]\\-^";
  std::string out = "[";
  for (const CharSet::Range& r : set.ranges()) {
    append(out, r.first, kSpecial);
    if (r.last == r.first) continue;
    if (r.last > r.first + 1) out += '-';
    append(out, r.last, kSpecial);
  }
  return out + ']';
}

std::string repetition(uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return "";
  if (min == 0 && max == 1) return "?";
  if (max == kUnbounded) return min == 0 ? "*" : min == 1 ? "+" : fmt::format("{{{},}}", min);
  return min == max ? fmt::format("{{{}}}", min) : fmt::format("{{{},{}}}", min, max);
}

std::string rule_name(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += word ? c : '-';
  }
  return out;
}

}  // namespace moetier::gbnf
