#include "tokenizer/space_borders.h"

namespace moetier {

void SpaceBorders::learn(std::string_view text) {
  for (size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos; at = text.find(kSpaceMark, at + 1))
    joined_.set(static_cast<uint8_t>(text[at - 1]));
}

void SpaceBorders::cut(std::string_view text, uint32_t offset, std::vector<TextSpan>& out) const {
  size_t begin = 0;
  for (size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos; at = text.find(kSpaceMark, at + 1)) {
    if (joined_.test(static_cast<uint8_t>(text[at - 1]))) continue;
    out.push_back({offset + static_cast<uint32_t>(begin), offset + static_cast<uint32_t>(at)});
    begin = at;
  }
  if (begin < text.size())
    out.push_back({offset + static_cast<uint32_t>(begin), offset + static_cast<uint32_t>(text.size())});
}

}  // namespace moetier
