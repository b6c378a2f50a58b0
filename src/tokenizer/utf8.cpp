#include "tokenizer/utf8.h"

namespace moetier {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// What a lead byte promises: the length, and the range its second byte must lie in (this excludes overlong forms,
/// surrogates and code points above U+10FFFF; the Unicode standard, table 3-7). Length 0: not a lead byte.
struct Lead {
  uint32_t length;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char utf8_at(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {Utf8Char::Kind::valid, 1, first};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Char::Kind::invalid, 1, 0};
  char32_t code = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {Utf8Char::Kind::truncated, i, 0};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Char::Kind::invalid, i, 0};
    code = (code << 6) | (byte & 0x3Fu);
  }
  return {Utf8Char::Kind::valid, lead.length, code};
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

void append_whole_utf8(std::string& out, std::string& pending, std::string_view bytes) {
  std::string joined;
  if (!pending.empty()) {
    joined = pending;
    joined += bytes;
    bytes = joined;
    pending.clear();
  }
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char next = utf8_at(bytes, at);
    if (next.kind == Utf8Char::Kind::truncated) {
      pending = bytes.substr(at);
      return;
    }
    out += next.kind == Utf8Char::Kind::valid ? bytes.substr(at, next.bytes) : kReplacement;
    at += next.bytes;
  }
}

void finish_utf8(std::string& out, std::string& pending) {
  if (!pending.empty()) out += kReplacement;
  pending.clear();
}

}  // namespace moetier
