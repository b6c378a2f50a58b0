// How fast weights pass through the kernels when one token is computed, by tensor type.
#pragma once

#include <cstdint>
#include <map>

#include "compute/compute.h"

namespace moetier {

/// Bytes by the type of the weights.
using BytesByType = std::map<TensorType, uint64_t>;

/// Bytes of weights per second in products of one row with a matrix of this type that is larger than the caches (memory
/// for it permitting): what memory and kernel give together. The best of some, in about a quarter of a second. Errors:
/// a type that cannot be computed with.
double decode_rate(Compute& compute, TensorType type);

/// The rate of a mixture, each type at its own; 0 for no bytes. Measures types once; `known` keeps them.
double decode_rate(Compute& compute, const BytesByType& bytes, std::map<TensorType, double>& known);

}  // namespace moetier
