// The sampler's random numbers: the same on every machine.
#pragma once

#include "base/random.h"

namespace moetier {

/// xoshiro256**.
class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}

  uint64_t next() { return generator_.next_starstar(); }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  Xoshiro256 generator_;
};

}  // namespace moetier
