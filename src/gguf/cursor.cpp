#include "gguf/cursor.h"

#include <fmt/format.h>

#include "base/error.h"

namespace moetier {

std::string quote(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kMost ? "...\"" : "\"";
  return out;
}

std::string_view Cursor::string(std::string_view field, uint64_t max_bytes) {
  const uint64_t at = offset_;
  const auto length = number<uint64_t>(field);
  if (length > max_bytes) {
    refuse(fmt::format("length of the {}", field), at,
           fmt::format("is {}, and at most {} bytes are allowed", length, max_bytes));
  }
  need(length, field);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
  offset_ += length;
  return text;
}

uint64_t Cursor::count(std::string_view field, uint64_t min_bytes) {
  const uint64_t at = offset_;
  const auto n = number<uint64_t>(field);
  if (n > left() / min_bytes) {
    refuse(field, at,
           fmt::format("is {}, but the {} bytes after it can hold at most {}; the file is cut short or damaged", n,
                       left(), left() / min_bytes));
  }
  return n;
}

void Cursor::refuse(std::string_view field, uint64_t at, std::string_view complaint) const {
  fail("{}: {}: {} at byte {} {}", *file_, subject_, field, at, complaint);
}

void Cursor::refuse_short(uint64_t n, std::string_view field) const {
  if (end_ < bytes_.size()) {
    refuse(field, offset_,
           fmt::format("lies beyond the first {} bytes, more than metadata and tensor records may take", end_));
  }
  refuse(
      field, offset_,
      fmt::format("needs {} bytes, but the file ends after {}; it is cut short or damaged, fetch it again", n, left()));
}

}  // namespace moetier
