#include "tokenizer/spm.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/log.h"
#include "tokenizer/utf8.h"

namespace moetier {

namespace {

/// Maps floats to integers that sort the other way round. Both zeros are one.
uint32_t descending_order(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

SpmMerger::SpmMerger(const Vocab& vocab, const std::string& file) : vocab_(vocab), byte_token_(256, -1) {
  score_order_.reserve(vocab.texts.size());
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    borders_.learn(vocab.texts[i]);
    longest_ = std::max(longest_, vocab.texts[i].size());
    score_order_.push_back(descending_order(vocab.scores[i]));
  }
  int missing = 0;
  for (int byte = 0; byte < 256; ++byte) {
    TokenId token = vocab.find_byte(static_cast<uint8_t>(byte));
    const char single = static_cast<char>(byte);
    if (token < 0) token = vocab.find(std::string_view(&single, 1));
    if (token < 0) ++missing;
    byte_token_[static_cast<size_t>(byte)] = token;
  }
  if (missing > 0)
    log::warn(
        "{}: the vocabulary has no token for {} of the 256 bytes; text that needs them becomes the unknown token or is "
        "lost",
        file, missing);
}

void SpmMerger::start_symbols(std::string_view word, Scratch& scratch) const {
  scratch.symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const uint32_t bytes = utf8_at(word, at).bytes;
    const auto index = static_cast<int32_t>(scratch.symbols.size());
    scratch.symbols.push_back({static_cast<uint32_t>(at), bytes, index - 1, index + 1, kUnread});
    at += bytes;
  }
  if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
}

/// Queues the merge of a symbol with its right neighbour, if together they are a token.
void SpmMerger::consider(std::string_view word, Scratch& scratch, int32_t left) const {
  if (left < 0) return;
  const Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const uint32_t bytes = symbol.bytes + scratch.symbols[static_cast<size_t>(symbol.next)].bytes;
  if (bytes > longest_) return;
  const TokenId token = vocab_.find(word.substr(symbol.begin, bytes));
  if (token < 0) return;
  const uint64_t order =
      (static_cast<uint64_t>(score_order_[static_cast<size_t>(token)]) << 32) | static_cast<uint32_t>(left);
  scratch.queue.push_back({order, bytes, token});
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void SpmMerger::merge_all(std::string_view word, Scratch& scratch) const {
  scratch.queue.clear();
  for (size_t i = 0; i + 1 < scratch.symbols.size(); ++i) consider(word, scratch, static_cast<int32_t>(i));
  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
    const Scratch::Candidate best = scratch.queue.back();
    scratch.queue.pop_back();
    const auto index = static_cast<int32_t>(static_cast<uint32_t>(best.order));
    Scratch::Symbol& left = scratch.symbols[static_cast<size_t>(index)];
    if (left.bytes == 0 || left.next < 0) continue;
    Scratch::Symbol& right = scratch.symbols[static_cast<size_t>(left.next)];
    if (left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.token = best.token;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) scratch.symbols[static_cast<size_t>(left.next)].previous = index;
    consider(word, scratch, left.previous);
    consider(word, scratch, index);
  }
}

void SpmMerger::emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  for (const char byte : bytes) {
    TokenId token = byte_token_[static_cast<uint8_t>(byte)];
    if (token < 0) token = vocab_.unknown;
    if (token >= 0) out.push_back(token);
  }
}

void SpmMerger::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  start_symbols(word, scratch);
  merge_all(word, scratch);
  // A merged symbol is always a token, since only tokens are merged to; a single character need not be one.
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    const Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(i)];
    const std::string_view bytes = word.substr(symbol.begin, symbol.bytes);
    const TokenId token = symbol.token == kUnread ? vocab_.find(bytes) : symbol.token;
    if (token >= 0) {
      out.push_back(token);
    } else {
      emit_bytes(bytes, out);
    }
  }
}

}  // namespace moetier
