// Four floats side by side: the encoders' sums must be taken in the order of the weights to give the stock quantizer's
// bytes, so the fits of several sub-blocks (or of several step sizes) run side by side, one in each lane. Internal to
// this room.
#pragma once

#include <cmath>
#include <cstdint>

namespace moetier::encoders {

inline constexpr int kLanes = 4;
using Floats [[gnu::vector_size(4 * kLanes)]] = float;
using Mask [[gnu::vector_size(4 * kLanes)]] = int32_t;

inline Floats all(float x) {
  return Floats{x, x, x, x};
}
inline Floats smaller(Floats a, Floats b) {
  return a < b ? a : b;
}
inline Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}
/// To even, then to [low, high]; NaN gives low.
inline Floats round_clamp(Floats x, float low, float high) {
  const Floats magic = all(12582912.0f);
  return (smaller(larger(x, all(low)), all(high)) + magic) - magic;
}
inline Floats magnitude(Floats x) {
  return x < 0 ? -x : x;
}
inline Floats square_root(Floats x) {
  return Floats{std::sqrt(x[0]), std::sqrt(x[1]), std::sqrt(x[2]), std::sqrt(x[3])};
}
inline bool any(Mask m) {
  return (m[0] | m[1] | m[2] | m[3]) != 0;
}

/// `kLanes` neighbouring sub-blocks of Length weights, transposed: element i of every sub-block side by side.
template <int Length>
struct SubBlocks {
  Floats x[Length];
  explicit SubBlocks(const float* values) {
    for (int i = 0; i < Length; ++i) {
      x[i] = Floats{values[i], values[Length + i], values[2 * Length + i], values[3 * Length + i]};
    }
  }
};

/// The weight of largest magnitude of each sub-block, with its sign; the first of equals.
struct Peaks {
  Floats peak, size;
};
template <int Length>
Peaks signed_peaks(const SubBlocks<Length>& sub) {
  Peaks p{all(0), all(0)};
  for (const Floats x : sub.x) {
    const Mask over = magnitude(x) > p.size;
    p.size = over ? magnitude(x) : p.size;
    p.peak = over ? x : p.peak;
  }
  return p;
}

/// Sub-blocks and super-blocks whose peak is smaller than this are zero to most types.
inline constexpr float kNothing = 1e-15f;

}  // namespace moetier::encoders
