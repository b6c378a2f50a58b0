#include "tokenizer/token_index.h"

#include <cstring>
#include <random>

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

}  // namespace moetier
