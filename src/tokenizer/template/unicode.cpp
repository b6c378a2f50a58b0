#include "tokenizer/template/unicode.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tokenizer/template/budget.h"
#include "tokenizer/template/unicode_tables.h"

namespace moetier::jinja {
namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

template <typename Row>
const Row* find_run(const Row* rows, size_t count, char32_t code) {
  const Row* row = std::upper_bound(rows, rows + count, code, [](char32_t c, const Row& r) { return c < r.first; });
  if (row == rows) return nullptr;
  --row;
  const uint32_t distance = code - row->first;
  return distance % row->step == 0 && distance / row->step < row->count ? row : nullptr;
}

#define MOETIER_HAS(table, code) (find_run(tables::table, tables::table##_size, code) != nullptr)

void append_mapped(std::string& out, char32_t code, const tables::Shift* shifts, size_t shift_count,
                   const tables::Expansion* expansions, size_t expansion_count) {
  if (const tables::Shift* shift = find_run(shifts, shift_count, code)) {
    append_utf8(out, static_cast<char32_t>(static_cast<int64_t>(code) + shift->delta));
    return;
  }
  const auto* end = expansions + expansion_count;
  const auto* found =
      std::lower_bound(expansions, end, code, [](const tables::Expansion& e, char32_t c) { return e.first < c; });
  if (found == end || found->first != code) {
    append_utf8(out, code);
    return;
  }
  for (const uint16_t to : found->to) {
    if (to != 0) append_utf8(out, to);
  }
}

void append_folded(std::string& out, char32_t code) {
  append_mapped(out, code, tables::to_fold, tables::to_fold_size, tables::to_fold_long, tables::to_fold_long_size);
}

constexpr char32_t capital_sigma = 0x3A3;
constexpr char32_t final_sigma = 0x3C2;

bool is_case_ignorable(char32_t code) {
  return MOETIER_HAS(case_ignorable, code);
}
bool is_cased(char32_t code) {
  return MOETIER_HAS(cased, code);
}

/// Whether the sigma at [begin, end) ends a word: a cased letter before it and none after, ignorable marks aside.
bool sigma_ends_word(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    const char32_t code = previous_code_point(text, begin);
    if (is_case_ignorable(code)) continue;
    cased_before = is_cased(code);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const char32_t code = next_code_point(text, end);
    if (is_case_ignorable(code)) continue;
    return !is_cased(code);
  }
  return true;
}

/// Lower case of the character at [begin, end) of `text`.
void append_lower_at(std::string& out, std::string_view text, char32_t code, size_t begin, size_t end) {
  if (code == capital_sigma && sigma_ends_word(text, begin, end)) {
    append_utf8(out, final_sigma);
  } else {
    append_lower(out, code);
  }
}

template <typename Append>
std::string mapped(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    append(out, code, begin, at);
  }
  return out;
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code = lead & (0x3Fu >> more);
  for (int i = 0; i < more && position < text.size(); ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[position++]) & 0x3Fu);
  }
  return code;
}

char32_t previous_code_point(std::string_view text, size_t& position) {
  do {
    --position;
  } while (position > 0 && is_continuation(text[position]));
  size_t at = position;
  return next_code_point(text, at);
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    if (next.kind != Utf8Char::Kind::valid) return false;
    at += next.bytes;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    if (next.kind == Utf8Char::Kind::valid) {
      out.append(text.substr(at, next.bytes));
      at += next.bytes;
    } else {
      append_utf8(out, 0xFFFD);
      ++at;
    }
  }
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += is_continuation(byte) ? 0 : 1;
  return count;
}

size_t byte_of_code_point(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size()) {
    if (!is_continuation(text[at])) {
      if (index == 0) return at;
      --index;
    }
    ++at;
  }
  return at;
}

bool is_alpha(char32_t code) {
  if (code < 0x80) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  return MOETIER_HAS(alpha, code);
}
bool is_decimal(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return MOETIER_HAS(decimal, code);
}
bool is_digit(char32_t code) {
  return code < 0x80 ? is_decimal(code) : MOETIER_HAS(digit, code);
}
bool is_numeric(char32_t code) {
  return code < 0x80 ? is_decimal(code) : MOETIER_HAS(numeric, code);
}
bool is_alnum(char32_t code) {
  return is_alpha(code) || is_numeric(code) || is_digit(code);
}
bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  return MOETIER_HAS(space, code);
}
bool is_lower(char32_t code) {
  return MOETIER_HAS(lower, code);
}
bool is_upper(char32_t code) {
  return MOETIER_HAS(upper, code);
}
bool is_title_only(char32_t code) {
  return MOETIER_HAS(title_only, code);
}
bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code < 0x7F;
  return !MOETIER_HAS(unprintable, code);
}
bool is_identifier_start(char32_t code) {
  return code == '_' || is_alpha(code) || MOETIER_HAS(identifier_start_more, code);
}
bool is_identifier_part(char32_t code) {
  if (code == '_' || MOETIER_HAS(identifier_more, code)) return true;
  return is_alnum(code) && !MOETIER_HAS(not_identifier, code);
}

bool has_case(std::string_view text, bool upper) {
  spend_on_characters(text.size());
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (is_title_only(code) || (upper ? is_lower(code) : is_upper(code))) return false;
    found = found || (upper ? is_upper(code) : is_lower(code));
  }
  return found;
}

int decimal_value(char32_t code) {
  if (code < 0x80) return is_decimal(code) ? static_cast<int>(code - '0') : -1;
  const tables::Run* run = find_run(tables::decimal, tables::decimal_size, code);
  return run == nullptr ? -1 : static_cast<int>((code - run->first) % 10);  // a run is one or more whole sets of digits
}

void append_upper(std::string& out, char32_t code) {
  append_mapped(out, code, tables::to_upper, tables::to_upper_size, tables::to_upper_long, tables::to_upper_long_size);
}
void append_lower(std::string& out, char32_t code) {
  append_mapped(out, code, tables::to_lower, tables::to_lower_size, tables::to_lower_long, tables::to_lower_long_size);
}
void append_title(std::string& out, char32_t code) {
  append_mapped(out, code, tables::to_title, tables::to_title_size, tables::to_title_long, tables::to_title_long_size);
}

std::string to_upper(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t code, size_t, size_t) { append_upper(out, code); });
}

std::string to_lower(std::string_view text) {
  return mapped(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    append_lower_at(out, text, code, begin, end);
  });
}

std::string to_title(std::string_view text) {
  bool inside = false;
  return mapped(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (inside) {
      append_lower_at(out, text, code, begin, end);
    } else {
      append_title(out, code);
    }
    inside = is_lower(code) || is_upper(code) || is_title_only(code);
  });
}

std::string capitalized(std::string_view text) {
  return mapped(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (begin == 0) {
      append_title(out, code);
    } else {
      append_lower_at(out, text, code, begin, end);
    }
  });
}

std::string swapped_case(std::string_view text) {
  return mapped(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (is_upper(code)) {
      append_lower_at(out, text, code, begin, end);
    } else if (is_lower(code)) {
      append_upper(out, code);
    } else {
      append_utf8(out, code);
    }
  });
}

std::string case_folded(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t code, size_t, size_t) { append_folded(out, code); });
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size() || wanted.size() > text.size() - from) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  const size_t at = found == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  // memmem prepares long texts to be searched for, and compares what it finds
  wanted.size() < 16 ? spend_on_text(at - from) : spend_on_characters(at - from + wanted.size());
  return found == nullptr ? std::string_view::npos : at;
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
  constexpr size_t short_enough = 16;
  if (wanted.size() > text.size()) return std::string_view::npos;
  if (wanted.size() <= short_enough) {
    const size_t found = text.rfind(wanted);
    spend_on_characters(text.size() - (found == std::string_view::npos ? 0 : found));
    return found;
  }
  // Knuth, Morris and Pratt, from the end: borders[i] is the longest proper suffix of the last i bytes that also ends
  // them.
  const size_t size = wanted.size();
  const Claim claim((size + 1) * sizeof(size_t));
  spend_on_characters(size);
  const auto from_end = [&](size_t i) { return wanted[size - 1 - i]; };
  std::vector<size_t> borders(size + 1, 0);
  for (size_t i = 1, matched = 0; i < size; ++i) {
    while (matched > 0 && from_end(i) != from_end(matched)) matched = borders[matched];
    if (from_end(i) == from_end(matched)) ++matched;
    borders[i + 1] = matched;
  }
  size_t found = std::string_view::npos, at = text.size();
  for (size_t matched = 0; at > 0 && matched < size;) {
    --at;
    while (matched > 0 && text[at] != from_end(matched)) matched = borders[matched];
    if (text[at] == from_end(matched)) ++matched;
    if (matched == size) found = at;
  }
  spend_on_characters(text.size() - at);
  return found;
}

std::string_view strip_left(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = at;
    if (!is_space(next_code_point(text, at))) return text.substr(begin);
  }
  return {};
}

std::string_view strip_right(std::string_view text) {
  size_t at = text.size();
  while (at > 0) {
    const size_t end = at;
    if (!is_space(previous_code_point(text, at))) return text.substr(0, end);
  }
  return {};
}

std::string_view strip(std::string_view text) {
  return strip_right(strip_left(text));
}

}  // namespace moetier::jinja
