// UTF-8, one character at a time, with a fixed answer for invalid bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moetier {

/// What begins at a byte of a text.
struct Utf8Char {
  enum class Kind {
    valid,      ///< a character (never a surrogate, never above U+10FFFF, never overlong)
    invalid,    ///< bytes that can't become a character whatever follows
    truncated,  ///< the text ends inside a character that could still become valid
  };
  Kind kind = Kind::valid;
  uint32_t bytes =
      1;  ///< its length; for an invalid one the longest prefix of a character (one U+FFFD each, as Unicode recommends)
  char32_t code = 0;  ///< only if valid
};

/// Decodes at `at`, which must be inside the text.
Utf8Char utf8_at(std::string_view text, size_t at);

/// Appends a code point up to U+10FFFF.
void append_utf8(std::string& out, char32_t code);

/// Appends the valid part of `pending + bytes` to `out`, each invalid sequence as U+FFFD as soon as it is certainly
/// invalid, and keeps the start of a character that may still become whole in `pending` (at most 3 bytes).
void append_whole_utf8(std::string& out, std::string& pending, std::string_view bytes);

/// Ends the stream that append_whole_utf8 began: what is pending becomes one U+FFFD.
void finish_utf8(std::string& out, std::string& pending);

}  // namespace moetier
