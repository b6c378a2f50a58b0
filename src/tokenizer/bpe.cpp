#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/utf8.h"

namespace moetier {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
    append_utf8(stand_ins_[static_cast<size_t>(byte)], code);
    bytes_[code] = static_cast<int16_t>(byte);
  }
}

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string ByteAlphabet::to_bytes(std::string_view token_text) const {
  std::string out;
  out.reserve(token_text.size());
  for (size_t at = 0; at < token_text.size();) {
    const Utf8Char next = utf8_at(token_text, at);
    const bool known = next.kind == Utf8Char::Kind::valid && next.code < bytes_.size() && bytes_[next.code] >= 0;
    if (known) {
      out.push_back(static_cast<char>(static_cast<uint8_t>(bytes_[next.code])));
    } else {
      out += token_text.substr(at, next.bytes);
    }
    at += next.bytes;
  }
  return out;
}

BpeMerger::BpeMerger(const Vocab& vocab, const std::vector<std::string>& merges, const std::string& file)
    : vocab_(vocab), raw_(vocab.model == VocabModel::raw_bpe) {
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max() - vocab.size()) / 2)
    fail("{}: tokenizer.ggml.merges has {} entries, more than can be numbered", file, merges.size());
  const auto intern = [this](std::string_view text) {
    const int32_t known = symbol_of(text);
    if (known >= 0) return known;
    extra_texts_.emplace_back(text);
    return vocab_.size() + extra_.insert(static_cast<int32_t>(extra_texts_.size()) - 1);
  };

  struct Pair {
    int32_t left;
    Merge merge;
  };
  std::vector<Pair> pairs;
  pairs.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view text = merges[i];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size())
      fail("{}: merge {} of tokenizer.ggml.merges is not two parts with a space between", file, i);
    const int32_t left = intern(text.substr(0, space));
    pairs.push_back({left, {intern(text.substr(space + 1)), static_cast<int32_t>(i), kNoSymbol}});
  }
  std::string joined;
  for (Pair& pair : pairs) {
    const std::string& text = merges[static_cast<size_t>(pair.merge.rank)];
    const size_t space = text.find(' ', 1);
    joined.assign(text, 0, space).append(text, space + 1);
    pair.merge.result = symbol_of(joined);
    if (raw_) borders_.learn(joined);
  }

  // Sorted by left, right and rank; of a pair listed twice the first counts.
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tie(a.left, a.merge.right, a.merge.rank) < std::tie(b.left, b.merge.right, b.merge.rank);
  });
  const auto same = [](const Pair& a, const Pair& b) { return a.left == b.left && a.merge.right == b.merge.right; };
  pairs.erase(std::unique(pairs.begin(), pairs.end(), same), pairs.end());
  first_.assign(vocab_.texts.size() + extra_texts_.size() + 1, 0);
  merges_.reserve(pairs.size());
  for (const Pair& pair : pairs) {
    ++first_[static_cast<size_t>(pair.left) + 1];
    merges_.push_back(pair.merge);
  }
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];

  int missing = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<size_t>(byte);
    const std::string& stand_in = ByteAlphabet::get().stand_in(static_cast<uint8_t>(byte));
    byte_symbol_[i] = symbol_of(stand_in);
    byte_token_[i] = raw_ ? vocab_.find_byte(static_cast<uint8_t>(byte)) : vocab_.find(stand_in);
    if (byte_token_[i] < 0) ++missing;
  }
  if (missing > 0)
    log::warn("{}: the vocabulary has no token for {} of the 256 bytes; text that needs them loses them", file,
              missing);
}

int32_t BpeMerger::symbol_of(std::string_view text) const {
  const TokenId token = vocab_.find(text);
  if (token >= 0) return token;
  const int32_t extra = extra_.find(text);
  return extra >= 0 ? vocab_.size() + extra : kNoSymbol;
}

const BpeMerger::Merge* BpeMerger::find_merge(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  const Merge* begin = merges_.data() + first_[static_cast<size_t>(left)];
  const Merge* end = merges_.data() + first_[static_cast<size_t>(left) + 1];
  const Merge* found =
      std::lower_bound(begin, end, right, [](const Merge& merge, int32_t id) { return merge.right < id; });
  return found != end && found->right == right ? found : nullptr;
}

void BpeMerger::start_symbols(std::string_view word, Scratch& scratch) const {
  scratch.symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const size_t length = raw_ ? utf8_at(word, at).bytes : 1;
    const int32_t id = raw_ ? symbol_of(word.substr(at, length)) : byte_symbol_[static_cast<uint8_t>(word[at])];
    const auto index = static_cast<int32_t>(scratch.symbols.size());
    scratch.symbols.push_back(
        {id, index - 1, index + 1, static_cast<uint32_t>(at), static_cast<uint32_t>(at + length)});
    at += length;
  }
  if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
}

/// Queues the merge of a symbol with its right neighbour, if there is one.
void BpeMerger::consider(Scratch& scratch, int32_t left) const {
  if (left < 0) return;
  const Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const int32_t right_id = scratch.symbols[static_cast<size_t>(symbol.next)].id;
  const Merge* merge = find_merge(symbol.id, right_id);
  if (merge == nullptr) return;
  const uint64_t order = (static_cast<uint64_t>(merge->rank) << 32) | static_cast<uint32_t>(left);
  scratch.queue.push_back({order, symbol.id, right_id});
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void BpeMerger::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  scratch.queue.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(scratch, static_cast<int32_t>(i));
  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
    const Scratch::Candidate best = scratch.queue.back();
    scratch.queue.pop_back();
    const auto index = static_cast<int32_t>(static_cast<uint32_t>(best.order));
    Scratch::Symbol& left = symbols[static_cast<size_t>(index)];
    // A candidate whose symbols have merged otherwise since is stale.
    if (left.id != best.left_id || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right_id) continue;
    left.id = find_merge(best.left_id, best.right_id)->result;
    left.end = right.end;
    left.next = right.next;
    right.id = kMerged;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = index;
    consider(scratch, left.previous);
    consider(scratch, index);
  }
}

/// A symbol that is no token falls back to the tokens of its bytes.
void BpeMerger::emit(std::string_view word, const Scratch::Symbol& symbol, std::vector<TokenId>& out) const {
  if (vocab_.has(symbol.id)) {
    out.push_back(symbol.id);
    return;
  }
  for (uint32_t at = symbol.begin; at < symbol.end; ++at) {
    const TokenId token = byte_token_[static_cast<uint8_t>(word[at])];
    if (token >= 0) out.push_back(token);
  }
}

/// Emits a word that is a token without merging it, where the vocabulary asks for that.
bool BpeMerger::emit_whole(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  TokenId token = -1;
  if (raw_) {
    // Words of newlines only: gemma 4 has a token for each of the usual lengths.
    if (word.find_first_not_of('\n') == std::string_view::npos) token = vocab_.find(word);
  } else if (vocab_.ignore_merges) {
    scratch.text.clear();
    for (const char byte : word) scratch.text += ByteAlphabet::get().stand_in(static_cast<uint8_t>(byte));
    token = vocab_.find(scratch.text);
  }
  if (token >= 0) out.push_back(token);
  return token >= 0;
}

void BpeMerger::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty() || emit_whole(word, scratch, out)) return;
  start_symbols(word, scratch);
  merge_all(scratch);
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next)
    emit(word, scratch.symbols[static_cast<size_t>(i)], out);
}

}  // namespace moetier
