#include "engine/structured/token_masks.h"

#include <algorithm>
#include <bit>

namespace moetier {
namespace {

void set_bit(TokenBits& bits, TokenId id) {
  bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

constexpr size_t kFew = 1024;  // up to so many tokens are kept as a list

}  // namespace

void TokenMasks::clear() {
  masks_.clear();
  local_.clear();
  bytes_ = 0;
}

void TokenMasks::set_node(const TokenTrie& trie, uint32_t node, TokenBits& bits) {
  const uint32_t end = trie.nodes[node + 1].first;
  for (uint32_t i = trie.nodes[node].first; i < end; ++i) set_bit(bits, trie.sorted[i]);
}

/// Control tokens stand only for what the grammar spells out: a string may hold any text, but no control token.
void TokenMasks::add_controls(Recognizer& recognizer, Recognizer::State state, TokenBits& bits) {
  const TokenTrie& trie = vocabulary_->control;
  path_.resize(vocabulary_->longest + 1);
  path_[0] = state;
  for (uint32_t i = 1; i < trie.nodes[0].skip;) {
    const TokenTrie::Node& n = trie.nodes[i];
    path_[n.depth] = recognizer.step_literal(path_[n.depth - size_t{1}], n.byte);
    if (recognizer.viable(path_[n.depth])) set_node(trie, i, bits);
    i += recognizer.configurations(path_[n.depth]).empty() ? n.skip : 1;
  }
}

/// Allows the tokens below a node (not its own), from the state that its text leads to. A rule that ends under an
/// unknown caller does not allow the token: its node goes to `escapes`.
void TokenMasks::walk(Recognizer& recognizer, Recognizer::State state, uint32_t node, TokenBits& bits,
                      std::vector<uint32_t>* escapes) {
  const TokenTrie& trie = vocabulary_->text;
  if (recognizer.configurations(state).empty()) return;
  path_.resize(vocabulary_->longest + 1);
  path_[trie.nodes[node].depth] = state;
  const uint32_t end = node + trie.nodes[node].skip;
  size_t steps = 0;
  for (uint32_t i = node + 1; i < end;) {
    const TokenTrie::Node& n = trie.nodes[i];
    const Recognizer::State next = recognizer.step(path_[n.depth - size_t{1}], n.byte);
    ++steps;
    if (next == Recognizer::kDead) {
      i += n.skip;
      continue;
    }
    if (recognizer.viable(next)) set_node(trie, i, bits);
    if (escapes != nullptr && recognizer.escaped(next)) escapes->push_back(i);
    path_[n.depth] = next;
    i += recognizer.configurations(next).empty() ? n.skip : 1;
  }
  recognizer.work(steps / 8);
}

const TokenMasks::LocalMask& TokenMasks::local_mask(Recognizer& recognizer, Recognizer::State state) {
  const auto [found, fresh] = local_.try_emplace(state);
  LocalMask& local = found->second;
  if (!fresh) return local;
  TokenBits bits(words());
  try {
    walk(recognizer, state, 0, bits, &local.escapes);
  } catch (...) {
    local_.erase(found);
    throw;
  }
  local.escapes.shrink_to_fit();
  size_t count = 0;
  for (const uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  if (count > kFew) {
    local.bits = std::move(bits);
  } else {
    for (size_t w = 0; w < bits.size(); ++w) {
      for (uint64_t word = bits[w]; word != 0; word &= word - 1) {
        local.few.push_back(static_cast<TokenId>(w * 64 + static_cast<size_t>(std::countr_zero(word))));
      }
    }
  }
  bytes_ += sizeof(LocalMask) + 64 + local.bits.size() * 8 + local.few.capacity() * 4 + local.escapes.capacity() * 4;
  return local;
}

/// Whole tokens that the item asks for.
void TokenMasks::add_tokens(const Configuration& c, TokenBits& bits) const {
  const GrammarItem& item = grammar_->items[c.item];
  const auto id = static_cast<TokenId>(item.target);
  const bool known = id < vocabulary_->size;
  if (item.kind == GrammarItem::Kind::token) {
    if (known && !vocabulary_->ends[item.target]) set_bit(bits, id);
    return;
  }
  const bool had = known && (bits[item.target / 64] >> (item.target % 64) & 1) != 0;
  for (TokenId other = 0; other < vocabulary_->size; ++other) {
    if (!vocabulary_->ends[static_cast<size_t>(other)]) set_bit(bits, other);
  }
  if (known && !had) bits[item.target / 64] &= ~(uint64_t{1} << (item.target % 64));
}

void TokenMasks::add_configuration(Recognizer& recognizer, const Configuration& c, TokenBits& bits) {
  if (grammar_->items[c.item].kind != GrammarItem::Kind::chars) return add_tokens(c, bits);
  const Recognizer::Local place = recognizer.localize(c, vocabulary_->longest);
  const LocalMask& local = local_mask(recognizer, place.state);
  for (size_t w = 0; w < local.bits.size(); ++w) bits[w] |= local.bits[w];
  for (const TokenId id : local.few) set_bit(bits, id);
  if (local.escapes.empty()) return;
  if (place.frame == Recognizer::kBottom) {
    for (const uint32_t node : local.escapes) set_node(vocabulary_->text, node, bits);
    return;
  }
  const Recognizer::State after = recognizer.after_return(place.frame);
  if (!recognizer.viable(after)) return;  // too deep
  for (const uint32_t node : local.escapes) {
    set_node(vocabulary_->text, node, bits);
    walk(recognizer, after, node, bits, nullptr);
  }
}

const TokenBits& TokenMasks::mask(Recognizer& recognizer, Recognizer::State state) {
  const auto known = masks_.find(state);
  if (known != masks_.end()) return known->second;
  TokenBits bits(words());
  const auto span = recognizer.configurations(state);
  const std::vector<Configuration> configurations(span.begin(), span.end());  // the pool moves as it grows
  for (const Configuration& c : configurations) add_configuration(recognizer, c, bits);
  add_controls(recognizer, state, bits);
  bytes_ += sizeof(TokenBits) + 64 + bits.size() * 8;
  return masks_.emplace(state, std::move(bits)).first->second;
}

}  // namespace moetier
