// The steps of recurrent_ops.h, the same for all units.
//
// `Unit` is a type in the unit's own unnamed namespace, so that no two units share a copy compiled for one of them. Its
// members: a vector V of kLanes floats (a divisor of 16), load, store, set, add, mul, silu, and tree16 of 16 / kLanes
// vectors of partial sums.
#pragma once

#include <cstdint>

#include "compute/cpu/math.h"
#include "compute/cpu/recurrent_ops.h"

namespace moetier::cpu {

/// The 16 partial sums of a row.
template <typename Unit>
struct RowSums {
  static constexpr int kVectors = 16 / Unit::kLanes;
  typename Unit::V p[kVectors];

  MOETIER_INLINE RowSums() {
    for (int i = 0; i < kVectors; ++i) p[i] = Unit::set(0.0f);
  }
  MOETIER_INLINE void add(int i, typename Unit::V product) { p[i] = Unit::add(p[i], product); }
  MOETIER_INLINE float total() const { return Unit::tree16(p); }
};

template <typename Unit>
void conv_row(const float* const* inputs, const float* weights, int64_t stride, int taps, const float* bias, bool silu,
              int64_t n, float* out) {
  int64_t c = 0;
  for (; c + Unit::kLanes <= n; c += Unit::kLanes) {
    typename Unit::V sum = Unit::set(0.0f);
    for (int j = 0; j < taps; ++j)
      sum = Unit::add(sum, Unit::mul(Unit::load(inputs[j] + c), Unit::load(weights + j * stride + c)));
    if (bias != nullptr) sum = Unit::add(sum, Unit::load(bias + c));
    Unit::store(out + c, silu ? Unit::silu(sum) : sum);
  }
  for (; c < n; ++c) {
    float sum = 0.0f;
    for (int j = 0; j < taps; ++j) sum = sum + inputs[j][c] * weights[j * stride + c];
    if (bias != nullptr) sum = sum + bias[c];
    out[c] = silu ? num::silu(sum) : sum;
  }
}

template <typename Unit>
void delta_rows(const DeltaStep& s) {
  constexpr int kLanes = Unit::kLanes;
  for (int64_t j = 0; j < s.rows; ++j) {
    const float* from = s.from + j * s.width;
    float* to = s.to + j * s.width;
    RowSums<Unit> known;
    for (int64_t c = 0; c < s.width; c += 16) {
      for (int i = 0; i < RowSums<Unit>::kVectors; ++i) {
        const int64_t at = c + i * kLanes;
        const auto kept = Unit::mul(Unit::load(from + at), Unit::load(s.decay + at));
        Unit::store(to + at, kept);
        known.add(i, Unit::mul(kept, Unit::load(s.key + at)));
      }
    }
    const auto change = Unit::set(s.beta * (s.value[j] - known.total()));
    RowSums<Unit> read;
    for (int64_t c = 0; c < s.width; c += 16) {
      for (int i = 0; i < RowSums<Unit>::kVectors; ++i) {
        const int64_t at = c + i * kLanes;
        const auto state = Unit::add(Unit::load(to + at), Unit::mul(Unit::load(s.key + at), change));
        Unit::store(to + at, state);
        read.add(i, Unit::mul(state, Unit::load(s.query + at)));
      }
    }
    s.out[j] = s.scale * read.total();
  }
}

template <typename Unit>
void scan_rows(const ScanStep& s) {
  constexpr int kLanes = Unit::kLanes;
  const auto decay = Unit::set(s.decay);
  for (int64_t j = 0; j < s.rows; ++j) {
    const float* from = s.from + j * s.width;
    float* to = s.to + j * s.width;
    const auto change = Unit::set(s.x[j] * s.step);
    RowSums<Unit> read;
    for (int64_t c = 0; c < s.width; c += 16) {
      for (int i = 0; i < RowSums<Unit>::kVectors; ++i) {
        const int64_t at = c + i * kLanes;
        const auto state = Unit::add(Unit::mul(Unit::load(from + at), decay), Unit::mul(Unit::load(s.b + at), change));
        Unit::store(to + at, state);
        read.add(i, Unit::mul(state, Unit::load(s.c + at)));
      }
    }
    s.out[j] = read.total() + s.skip * s.x[j];
  }
}

}  // namespace moetier::cpu
