#include "tokenizer/token_index.h"

#include <cstring>
#include <random>
#include <utility>

namespace moetier {

namespace {

uint64_t process_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  return seed;
}

/// Both halves of the 128-bit product, folded: one multiplication mixes every bit.
uint64_t fold_multiply(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

size_t SeededTextHash::operator()(std::string_view text) const {
  constexpr uint64_t odd = 0x9E3779B97F4A7C15u;
  uint64_t state = process_seed() ^ (text.size() * odd);
  while (text.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    state = fold_multiply(state ^ word, odd ^ process_seed());
    text.remove_prefix(8);
  }
  uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return static_cast<size_t>(fold_multiply(state ^ rest, odd));
}

/// Which slot holds `text`, or the empty one where it would go.
size_t TokenIndex::slot_of(std::string_view text, size_t hash) const {
  const auto tag = static_cast<uint32_t>(uint64_t{hash} >> 32);
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.id < 0 || (slot.tag == tag && texts_[static_cast<size_t>(slot.id)] == text)) return at;
  }
}

void TokenIndex::reserve(size_t count) {
  size_t slots = 16;
  while (slots < 2 * count + 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void TokenIndex::grow(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    const std::string& text = texts_[static_cast<size_t>(slot.id)];
    slots_[slot_of(text, SeededTextHash()(text))] = slot;
  }
}

int32_t TokenIndex::insert(int32_t id) {
  reserve(taken_ + 1);
  const std::string& text = texts_[static_cast<size_t>(id)];
  const size_t hash = SeededTextHash()(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id >= 0) return slot.id;
  slot = {static_cast<uint32_t>(uint64_t{hash} >> 32), id};
  ++taken_;
  return id;
}

int32_t TokenIndex::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[slot_of(text, SeededTextHash()(text))].id;
}

}  // namespace moetier
