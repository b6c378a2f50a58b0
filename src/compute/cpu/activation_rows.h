// The rows of activations of one call, encoded at most once per kind.
#pragma once

#include <array>
#include <vector>

#include "base/thread_pool.h"
#include "compute/cpu/activation_codes.h"
#include "compute/cpu/operand.h"

namespace moetier::cpu {

/// Which kinds of activations the weights of a call ask for.
struct ActivationKinds {
  std::array<bool, kActivationKinds> wanted{};

  void add(ActivationKind kind) { wanted[static_cast<size_t>(kind)] = true; }
  bool has(ActivationKind kind) const { return wanted[static_cast<size_t>(kind)]; }
};

/// Scratch grows to the largest call seen and stays.
class ActivationRows {
 public:
  /// `pool` must outlive this.
  ActivationRows(ThreadPool& pool, Isa isa) : pool_(pool), encoders_(activation_encoders(isa)) {}

  /// Room for so many rows of `columns`, so that encode() of fewer allocates nothing.
  void reserve(int64_t rows, int64_t columns, const ActivationKinds& kinds);

  /// Encodes the rows of `x` as every kind wanted; the columns must be a multiple of the kinds' blocks. Floats are used
  /// where they lie, so `x` must stay until the last use of row().
  void encode(const FloatsIn& x, const ActivationKinds& kinds);

  /// Row r as `kind`, which must have been wanted.
  const std::byte* row(ActivationKind kind, int64_t r) const {
    const View& view = views_[static_cast<size_t>(kind)];
    return view.base + static_cast<size_t>(r) * view.stride;
  }

 private:
  struct View {
    const std::byte* base = nullptr;
    size_t stride = 0;
  };

  ThreadPool& pool_;
  const ActivationEncoders& encoders_;
  std::array<View, kActivationKinds> views_{};
  std::array<std::vector<std::byte>, kActivationKinds> scratch_;
};

}  // namespace moetier::cpu
