// Random generators with the same numbers on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace moetier {

/// SplitMix64 (Steele, Lea and Flood, 2014): the next number of the sequence that begins at `state`.
inline uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// xoshiro256 (Blackman and Vigna, 2018), seeded by SplitMix64. Its two scramblers give two generators; draw from one
/// of them only.
class Xoshiro256 {
 public:
  explicit Xoshiro256(uint64_t seed) {
    for (uint64_t& word : state_) word = splitmix64(seed);
  }

  /// xoshiro256**.
  uint64_t next_starstar() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    step();
    return result;
  }

  /// xoshiro256++.
  uint64_t next_plusplus() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    step();
    return result;
  }

 private:
  void step() {
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
  }

  uint64_t state_[4];
};

}  // namespace moetier
