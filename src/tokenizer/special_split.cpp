#include "tokenizer/special_split.h"

#include <algorithm>

namespace moetier {

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocab& vocab) : vocab_(vocab) {
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (vocab.is(id, kTokenControl | kTokenUnknown | kTokenUserDefined)) by_text_.push_back(id);
  }
  const auto text = [&vocab](TokenId id) -> const std::string& { return vocab.texts[static_cast<size_t>(id)]; };
  std::sort(by_text_.begin(), by_text_.end(), [&](TokenId a, TokenId b) { return text(a) < text(b); });
  for (const TokenId id : by_text_) ++by_first_[static_cast<uint8_t>(text(id)[0]) + size_t{1}];
  for (size_t i = 1; i < by_first_.size(); ++i) by_first_[i] += by_first_[i - 1];
}

/// Places in by_text_ of the tokens that occur in `text` at all.
std::vector<size_t> SpecialSplitter::present(std::string_view text, bool parse_special) const {
  std::vector<bool> seen(by_text_.size(), false);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto first = static_cast<uint8_t>(text[at]);
    size_t low = by_first_[first], high = by_first_[first + size_t{1}];
    // The tokens from low to high share `depth` bytes with the text from here.
    for (size_t depth = 1; low < high; ++depth) {
      const std::string& shortest = vocab_.texts[static_cast<size_t>(by_text_[low])];
      if (shortest.size() == depth) seen[low++] = true;
      if (at + depth >= text.size()) break;
      const auto begin = by_text_.begin() + static_cast<std::ptrdiff_t>(low);
      const auto end = by_text_.begin() + static_cast<std::ptrdiff_t>(high);
      const auto wanted = static_cast<uint8_t>(text[at + depth]);
      const auto byte = [this, depth](TokenId id) {
        return static_cast<uint8_t>(vocab_.texts[static_cast<size_t>(id)][depth]);
      };
      const auto from = std::partition_point(begin, end, [&](TokenId id) { return byte(id) < wanted; });
      const auto to = std::partition_point(from, end, [&](TokenId id) { return byte(id) == wanted; });
      low = static_cast<size_t>(from - by_text_.begin());
      high = static_cast<size_t>(to - by_text_.begin());
    }
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] && (parse_special || !vocab_.is(by_text_[i], kTokenControl | kTokenUnknown))) found.push_back(i);
  }
  return found;
}

/// Cuts every occurrence of one token out of the fragments that are still raw.
std::vector<TextFragment> SpecialSplitter::cut(std::string_view text, const std::vector<TextFragment>& fragments,
                                               TokenId token) const {
  const std::string_view wanted = vocab_.texts[static_cast<size_t>(token)];
  const bool strip_right = vocab_.is(token, kTokenStripRight);
  std::vector<TextFragment> out;
  for (const TextFragment& fragment : fragments) {
    if (fragment.token >= 0) {
      out.push_back(fragment);
      continue;
    }
    size_t begin = fragment.begin;
    while (begin < fragment.end) {
      const size_t found = text.substr(0, fragment.end).find(wanted, begin);
      if (found == std::string_view::npos) break;
      if (found > begin) out.push_back({-1, begin, found});
      begin = found + wanted.size();
      out.push_back({token, found, begin});
      while (strip_right && begin < fragment.end && is_space(text[begin])) ++begin;
    }
    if (begin < fragment.end) out.push_back({-1, begin, fragment.end});
  }
  return out;
}

std::vector<TextFragment> SpecialSplitter::split(std::string_view text, bool parse_special) const {
  std::vector<TextFragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({-1, 0, text.size()});
  std::vector<TokenId> tokens;
  for (const size_t place : present(text, parse_special)) tokens.push_back(by_text_[place]);
  const auto length = [this](TokenId id) { return vocab_.texts[static_cast<size_t>(id)].size(); };
  std::sort(tokens.begin(), tokens.end(),
            [&](TokenId a, TokenId b) { return length(a) != length(b) ? length(a) > length(b) : a < b; });
  for (const TokenId token : tokens) fragments = cut(text, fragments, token);
  return fragments;
}

}  // namespace moetier
