// textwrap.wrap: words into lines, as Python's default TextWrapper does (tabs and white space left as they are).
#include <algorithm>

#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

// textwrap knows only ASCII's white space.
bool is_blank(char32_t code) {
  return code == ' ' || (code >= 9 && code <= 13);
}
bool is_word_part(char32_t code) {
  return code == '_' || is_alnum(code);
}
bool is_letter(char32_t code) {
  return is_word_part(code) && !is_decimal(code);
}
/// [\w!"'&.,?]
bool is_word_punctuation(char32_t code) {
  return is_word_part(code) || code == '!' || code == '"' || code == '\'' || code == '&' || code == '.' ||
         code == ',' || code == '?';
}

class Splitter {
 public:
  Splitter(std::string_view text, bool on_hyphens) : on_hyphens_(on_hyphens) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      codes_.push_back(next_code_point(text, at));
      offsets_.push_back(begin);
    }
    offsets_.push_back(text.size());
    spend(codes_.size());
  }

  /// The pieces of text between which a line may end; white space makes pieces too.
  std::vector<std::pair<size_t, size_t>> run() {
    for (size_t at = 0; at < codes_.size();) {
      const size_t end = is_blank(codes_[at]) ? blanks_end(at) : on_hyphens_ ? piece_end(at) : word_end(at);
      pieces_.emplace_back(at, end);
      at = end;
    }
    return std::move(pieces_);
  }
  size_t offset(size_t index) const { return offsets_[index]; }
  char32_t code(size_t index) const { return codes_[index]; }

 private:
  char32_t get(size_t at) const { return at < codes_.size() ? codes_[at] : U' '; }

  size_t blanks_end(size_t at) const {
    while (at < codes_.size() && is_blank(codes_[at])) ++at;
    return at;
  }
  size_t word_end(size_t at) const {
    while (at < codes_.size() && !is_blank(codes_[at])) ++at;
    return at;
  }

  bool is_dash_run(size_t at, size_t& end) const {
    end = at;
    while (get(end) == '-') ++end;
    return end - at >= 2 && is_word_part(get(end));
  }

  /// A dash of two or more hyphens between words begins here.
  bool dash_after_word(size_t at) const {
    size_t end = 0;
    return at > 0 && is_word_punctuation(codes_[at - 1]) && is_dash_run(at, end);
  }

  /// Behind `at` a hyphenated word may be broken: -, then a letter and another one or a hyphen before it.
  bool breaks_after_hyphen(size_t at) const {
    if (get(at) != '-' || !is_letter(get(at + 1))) return false;
    if (!(is_letter(get(at + 2)) || (get(at + 2) == '-' && is_letter(get(at + 3))))) return false;
    const bool two_letters = at >= 2 && is_letter(codes_[at - 1]) && is_letter(codes_[at - 2]);
    const bool letter_hyphen_letter =
        at >= 3 && is_letter(codes_[at - 1]) && codes_[at - 2] == '-' && is_letter(codes_[at - 3]);
    return two_letters || letter_hyphen_letter;
  }

  size_t piece_end(size_t begin) const {
    size_t end = 0;
    if (dash_after_word(begin) && is_dash_run(begin, end)) return end;
    for (size_t at = begin + 1; at <= codes_.size(); ++at) {
      if (at == codes_.size() || is_blank(codes_[at])) return at;
      if (breaks_after_hyphen(at)) return at + 1;
      if (dash_after_word(at)) return at;
    }
    return codes_.size();
  }

  bool on_hyphens_;
  std::vector<char32_t> codes_;
  std::vector<size_t> offsets_;
  std::vector<std::pair<size_t, size_t>> pieces_;
};

}  // namespace

std::vector<std::string> wrapped_lines(std::string_view line, int64_t width, bool break_long_words,
                                       bool break_on_hyphens) {
  if (width <= 0) raise(FaultKind::value, "invalid width {} (must be > 0)", width);
  Splitter splitter(line, break_on_hyphens);
  auto pieces = splitter.run();
  const auto room = static_cast<size_t>(width);
  std::vector<std::string> lines;
  const auto is_white = [&](const std::pair<size_t, size_t>& piece) {
    // what str.strip leaves nothing of
    for (size_t i = piece.first; i < piece.second; ++i) {
      if (!is_space(splitter.code(i))) return false;
    }
    return true;
  };
  for (size_t next = 0; next < pieces.size();) {
    if (!lines.empty() && is_white(pieces[next])) ++next;
    std::vector<std::pair<size_t, size_t>> taken;
    size_t length = 0;
    while (next < pieces.size() && length + pieces[next].second - pieces[next].first <= room) {
      length += pieces[next].second - pieces[next].first;
      taken.push_back(pieces[next++]);
    }
    if (next < pieces.size() && pieces[next].second - pieces[next].first > room) {
      auto& [begin, end] = pieces[next];
      const size_t left = room - length;
      if (break_long_words) {
        size_t cut = begin + left;
        if (break_on_hyphens) {  // behind the last hyphen that fits, if there is something else before it
          for (size_t hyphen = cut; hyphen > begin + 1; --hyphen) {
            if (splitter.code(hyphen - 1) != '-') continue;
            bool other = false;
            for (size_t i = begin; i < hyphen - 1; ++i) other = other || splitter.code(i) != '-';
            if (other) cut = hyphen;
            break;
          }
        }
        taken.emplace_back(begin, cut);
        begin = cut;
      } else if (taken.empty()) {
        taken.push_back(pieces[next++]);
      }
    }
    if (!taken.empty() && is_white(taken.back())) taken.pop_back();
    if (taken.empty()) continue;
    const size_t from = splitter.offset(taken.front().first), to = splitter.offset(taken.back().second);
    lines.emplace_back(line.substr(from, to - from));
    spend(1);
  }
  return lines;
}

}  // namespace moetier::jinja
