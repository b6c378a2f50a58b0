#include "engine/structured/token_trie.h"

#include <algorithm>

namespace moetier {
namespace {

using Impl = GrammarVocabulary::Impl;

/// Written as control tokens are, though the vocabulary may call it text: <|channel|>, <｜tool▁sep｜>.
bool looks_special(std::string_view text) {
  return text.size() > 4 && text.starts_with('<') && text.ends_with('>') &&
         (text.find('|') != std::string_view::npos || text.find("｜") != std::string_view::npos);
}

/// Fills a trie whose tokens are there.
class TrieBuilder {
 public:
  TrieBuilder(const Impl& all, TokenTrie& out) : all_(all), out_(out) {}

  void build() {
    std::sort(out_.sorted.begin(), out_.sorted.end(), [&](TokenId a, TokenId b) {
      const int order = all_.text_of(a).compare(all_.text_of(b));
      return order != 0 ? order < 0 : a < b;
    });
    // The nodes on the way to the token before; a token's common beginning with it is kept.
    std::vector<size_t> path{add(0, 0, 0)};
    std::string_view before;
    for (uint32_t i = 0; i < out_.sorted.size(); ++i) {
      const std::string_view text = all_.text_of(out_.sorted[i]);
      const size_t same = static_cast<size_t>(
          std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
      while (path.size() > same + 1) close(path);
      while (path.size() <= text.size()) {
        const size_t depth = path.size();
        path.push_back(add(static_cast<uint8_t>(text[depth - 1]), depth, i));
      }
      before = text;
    }
    while (!path.empty()) close(path);
    add(0, 0, static_cast<uint32_t>(out_.sorted.size()));
  }

 private:
  size_t add(uint8_t byte, size_t depth, uint32_t first) {
    out_.nodes.push_back({.skip = 1, .first = first, .depth = static_cast<uint16_t>(depth), .byte = byte});
    return out_.nodes.size() - 1;
  }
  void close(std::vector<size_t>& path) {
    out_.nodes[path.back()].skip = static_cast<uint32_t>(out_.nodes.size() - path.back());
    path.pop_back();
  }

  const Impl& all_;
  TokenTrie& out_;
};

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
GrammarVocabulary::~GrammarVocabulary() = default;

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::make(const Tokenizer& tokenizer, bool control_text) {
  auto impl = std::make_unique<Impl>();
  impl->size = tokenizer.vocab_size();
  impl->ends.resize(static_cast<size_t>(impl->size));
  impl->controls.resize(static_cast<size_t>(impl->size));
  std::vector<bool> suppressed(static_cast<size_t>(impl->size));
  for (const TokenId id : tokenizer.suppressed()) {
    if (id >= 0 && id < impl->size) suppressed[static_cast<size_t>(id)] = true;
  }
  impl->text_begin.push_back(0);
  for (TokenId id = 0; id < impl->size; ++id) {
    if (tokenizer.is_end_of_generation(id)) {
      impl->ends[static_cast<size_t>(id)] = true;
      impl->end_tokens.push_back(id);
    } else if (!suppressed[static_cast<size_t>(id)]) {
      const std::string text = tokenizer.piece(id, control_text);
      if (text.size() <= Impl::kLongest) {
        impl->bytes += text;
        impl->longest = std::max(impl->longest, text.size());
        const bool control = looks_special(text) || (control_text && tokenizer.piece(id).empty());
        impl->controls[static_cast<size_t>(id)] = control;
        if (!text.empty()) (control ? impl->control : impl->text).sorted.push_back(id);
      }
    }
    impl->text_begin.push_back(impl->bytes.size());
  }
  TrieBuilder(*impl, impl->text).build();
  TrieBuilder(*impl, impl->control).build();
  return std::make_shared<const GrammarVocabulary>(std::move(impl));
}

}  // namespace moetier
