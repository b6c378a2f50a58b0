#include "tokenizer/tokenizer.h"

#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/space_borders.h"
#include "tokenizer/utf8.h"

namespace moetier {

namespace {

/// Symbols and spans count bytes in 31 bits, and a marked space takes three bytes.
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max() / 3 - 16;

std::string mark_spaces(std::string_view text, bool space_before) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (space_before) out += kSpaceMark;
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
  return out;
}

std::string unmark_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = text.find(kSpaceMark, at);
    out += text.substr(at, mark - at);
    if (mark == std::string_view::npos) break;
    out += ' ';
    at = mark + kSpaceMark.size();
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const GgufFile& file) {
  return std::make_unique<GgufTokenizer>(read_vocab_source(file));
}

GgufTokenizer::GgufTokenizer(VocabSource source) : file_(source.file) {
  fill_vocab(vocab_, source);
  special_.emplace(vocab_);
  if (vocab_.model == VocabModel::spm) {
    spm_.emplace(vocab_, file_);
    return;
  }
  if (source.merges == nullptr) fail("{}: no tokenizer.ggml.merges, which a {} vocabulary needs", file_, source.model);
  bpe_.emplace(vocab_, *source.merges, file_);
  const bool raw = vocab_.model == VocabModel::raw_bpe;
  words_.emplace(raw ? PatternSet::gemma4 : find_pretokenizer(source.pre, file_).set);
}

std::vector<TokenId> GgufTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes)
    fail("a text of {} bytes is too long for the tokenizer; it takes up to {} at a time", text.size(), kMaxTextBytes);
  std::vector<TokenId> out;
  if (options.add_special && vocab_.add_bos && vocab_.bos >= 0) out.push_back(vocab_.bos);
  bool after_special = true;
  for (const TextFragment& fragment : special_->split(text, options.parse_special)) {
    if (fragment.token >= 0) {
      out.push_back(fragment.token);
    } else {
      encode_raw(text.substr(fragment.begin, fragment.end - fragment.begin), vocab_.add_space_prefix && after_special,
                 out);
    }
    after_special = fragment.token >= 0;
  }
  if (options.add_special && vocab_.add_eos && vocab_.eos >= 0) out.push_back(vocab_.eos);
  return out;
}

/// Cuts raw text into the words that merge on their own.
std::vector<TextSpan> GgufTokenizer::cut_words(std::string_view text) const {
  std::vector<TextSpan> words;
  if (spm_) {
    spm_->borders().cut(text, 0, words);
    return words;
  }
  words_->split(text, words);
  if (vocab_.model == VocabModel::byte_level_bpe) return words;
  std::vector<TextSpan> pieces;
  for (const TextSpan& word : words)
    bpe_->borders().cut(text.substr(word.begin, word.end - word.begin), word.begin, pieces);
  return pieces;
}

void GgufTokenizer::encode_raw(std::string_view text, bool space_before, std::vector<TokenId>& out) const {
  std::string marked;
  if (vocab_.model != VocabModel::byte_level_bpe) {
    marked = mark_spaces(text, space_before && spm_.has_value());
    text = marked;
  }
  // Texts repeat their words: where a word was met before, its tokens stand in `out` already.
  constexpr size_t longest_remembered = 64, most_remembered = 1 << 16;
  std::unordered_map<std::string_view, std::pair<size_t, size_t>, SeededTextHash> met;
  BpeMerger::Scratch bpe_scratch;
  SpmMerger::Scratch spm_scratch;
  for (const TextSpan& span : cut_words(text)) {
    const std::string_view word = text.substr(span.begin, span.end - span.begin);
    const size_t before = out.size();
    if (word.size() <= longest_remembered) {
      if (const auto found = met.find(word); found != met.end()) {
        for (size_t i = found->second.first; i < found->second.second; ++i) out.push_back(TokenId{out[i]});
        continue;
      }
    }
    if (spm_) {
      spm_->encode_word(word, spm_scratch, out);
    } else {
      bpe_->encode_word(word, bpe_scratch, out);
    }
    if (word.size() <= longest_remembered && met.size() < most_remembered)
      met.emplace(word, std::pair(before, out.size()));
  }
}

size_t GgufTokenizer::checked(TokenId id) const {
  if (!vocab_.has(id)) fail("token {} is outside the vocabulary of {}, which has {} tokens", id, file_, vocab_.size());
  return static_cast<size_t>(id);
}

std::string GgufTokenizer::piece(TokenId id, bool special) const {
  const std::string& text = vocab_.texts[checked(id)];
  if (vocab_.is(id, kTokenControl | kTokenUnknown)) return special ? text : std::string();
  if (vocab_.is(id, kTokenUserDefined)) return text;
  if (vocab_.is(id, kTokenByte))
    return std::string(1, static_cast<char>(static_cast<uint8_t>(byte_of_token_text(text))));
  if (!vocab_.is(id, kTokenNormal)) return {};
  return vocab_.model == VocabModel::byte_level_bpe ? ByteAlphabet::get().to_bytes(text) : unmark_spaces(text);
}

std::string GgufTokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out, pending;
  // encode() puts a space before the first raw text, so the first piece that prints (BOS does not) begins with one too
  // many.
  bool drop_space = vocab_.add_space_prefix;
  for (const TokenId id : ids) {
    const std::string bytes = piece(id, special);
    std::string_view kept = bytes;
    const bool prints_text = !vocab_.is(id, kTokenControl | kTokenUnknown);
    if (drop_space && prints_text && !kept.empty() && kept[0] == ' ') kept.remove_prefix(1);
    if (prints_text) drop_space = false;
    append_whole_utf8(out, pending, kept);
  }
  finish_utf8(out, pending);
  return out;
}

bool GgufTokenizer::is_end_of_generation(TokenId id) const {
  return vocab_.has(id) && vocab_.ends_generation[static_cast<size_t>(id)];
}

bool GgufTokenizer::is_control(TokenId id) const {
  return vocab_.has(id) && vocab_.is(id, kTokenControl);
}

const std::string& GgufTokenizer::text(TokenId id) const {
  return vocab_.texts[checked(id)];
}

std::string clean_up_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto at = [&text](size_t i) { return i < text.size() ? text[i] : '\0'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ' ') {
      out += text[i];
      continue;
    }
    const char next = at(i + 1);
    if (next == '?' || next == '!' || next == '.' || next == ',') continue;
    if (next == '\'') {
      const char after = at(i + 2);
      if (after == ' ') {
        out += '\'';
        i += 2;
        continue;
      }
      if (after == 's' || after == 'm' || ((after == 'r' || after == 'v') && at(i + 3) == 'e')) continue;
    }
    out += ' ';
  }
  return out;
}

}  // namespace moetier
