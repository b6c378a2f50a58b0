#include "tokenizer/template/string_functions.h"

#include <algorithm>

#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

/// Pieces of a text, whose memory is counted while they grow.
struct Pieces {
  std::vector<std::string_view> list;
  Claim claim;
  void push_back(std::string_view piece) {
    claim.grow(sizeof(std::string_view));
    list.push_back(piece);
  }
  size_t size() const { return list.size(); }
  std::vector<std::string_view> take(bool reversed = false) {
    if (reversed) std::reverse(list.begin(), list.end());
    return std::move(list);
  }
};

std::vector<std::string_view> split_at_space(std::string_view text, int64_t most) {
  spend_on_characters(text.size());
  Pieces parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
      parts.push_back(text);
      break;
    }
    size_t at = 0, end = 0;
    while (at < text.size() && !is_space(next_code_point(text, at))) end = at;
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts.take();
}

std::vector<std::string_view> split_at_space_from_right(std::string_view text, int64_t most) {
  spend_on_characters(text.size());
  Pieces parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
      parts.push_back(text);
      break;
    }
    size_t at = text.size(), begin = at;
    while (at > 0 && !is_space(previous_code_point(text, at))) begin = at;
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  return parts.take(true);
}

bool has_character(std::string_view characters, char32_t wanted) {
  spend_on_characters(characters.size());
  for (size_t at = 0; at < characters.size();) {
    if (next_code_point(characters, at) == wanted) return true;
  }
  return false;
}

}  // namespace

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  size_t left = count < 0 ? text.size() + 1 : static_cast<size_t>(count);
  std::string out;
  const auto put = [&](std::string_view piece) {
    check_text_size(out.size() + piece.size());
    out += piece;
  };
  if (from.empty()) {  // before every character and at the end
    spend_on_characters(text.size());
    size_t at = 0;
    while (left > 0) {
      --left;
      put(to);
      if (at == text.size()) return out;
      const size_t begin = at;
      next_code_point(text, at);
      put(text.substr(begin, at - begin));
    }
    put(text.substr(at));
    return out;
  }
  size_t at = 0;
  for (size_t found; left > 0 && (found = find_text(text, from, at)) != std::string_view::npos; --left) {
    put(text.substr(at, found - at));
    put(to);
    at = found + from.size();
  }
  put(text.substr(at));
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most) {
  if (!separator) return split_at_space(text, most);
  if (separator->empty()) raise(FaultKind::value, "empty separator");
  Pieces parts;
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = find_text(text, *separator, at);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator->size();
  }
  parts.push_back(text.substr(at));
  return parts.take();
}

std::vector<std::string_view> split_from_right(std::string_view text, std::optional<std::string_view> separator,
                                               int64_t most) {
  if (!separator) return split_at_space_from_right(text, most);
  if (separator->empty()) raise(FaultKind::value, "empty separator");
  Pieces parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = find_last_text(text, *separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator->size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  return parts.take(true);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  spend_on_characters(text.size());
  Pieces lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t code = next_code_point(text, at);
    if (!is_line_end(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines.take();
}

std::string_view stripped(std::string_view text, std::optional<std::string_view> characters, bool left, bool right) {
  if (!characters) {
    spend_on_text(text.size());
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t at = begin;
    if (!has_character(*characters, next_code_point(text, at))) break;
    begin = at;
  }
  while (right && end > begin) {
    size_t at = end;
    if (!has_character(*characters, previous_code_point(text, at))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::string repeated_text(std::string_view piece, size_t times) {
  check_text_product(piece.size(), times);
  spend_on_text(piece.size() * times);
  if (piece.size() == 1) return std::string(times, piece.front());
  spend(times);
  std::string out;
  out.reserve(piece.size() * times);
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::string centered(std::string_view text, int64_t width, std::string_view fill) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return std::string(text);
  const int64_t pad = width - length;
  const int64_t left = pad / 2 + (pad & width & 1);
  std::string out = repeated_text(fill, static_cast<size_t>(left));
  out += text;
  return out += repeated_text(fill, static_cast<size_t>(pad - left));
}

Value list_of(const std::vector<std::string_view>& texts, bool safe) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (const std::string_view text : texts) items.push_back(Value::string(std::string(text), safe));
  return Value::list(std::move(items));
}

}  // namespace moetier::jinja
