// How fast weights pass through the kernels when one token is computed, by tensor type.
#pragma once

#include <cstdint>
#include <map>

#include "compute/compute.h"

namespace moetier {

/// Matrices of a model that are alike, as one token meets them.
struct MatrixKind {
  TensorType type = TensorType::f32;
  int64_t columns = 0, rows = 0;
  int together = 1;  ///< so many are one operation: the experts of a token
  auto operator<=>(const MatrixKind&) const = default;
};
using BytesByKind = std::map<MatrixKind, uint64_t>;

/// Bytes of weights per second in products of one row with matrices of this kind, one operation after another over more
/// of them than the caches hold (memory for it permitting): what memory, kernel and the start of an operation give
/// together. The median of some passes, in about a quarter of a second. Errors: a type that cannot be computed with.
double decode_rate(Compute& compute, const MatrixKind& kind);

/// The rate of a mixture, each kind at its own; 0 for no bytes. Measures kinds once; `known` keeps them.
double decode_rate(Compute& compute, const BytesByKind& bytes, std::map<MatrixKind, double>& known);

}  // namespace moetier
