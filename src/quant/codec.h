// Blocks to floats and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/tensor_type.h"

namespace moetier {

/// Decodes `n` weights (a multiple of the block length) that lie packed at `blocks`, exactly: every step is rounded to
/// float32 in the order that docs/numbers.md gives, so the floats are the type's own, to the bit. The type must be
/// computable.
void decode(TensorType type, const std::byte* blocks, float* out, int64_t n);

/// True if encode() knows the type: every computable one but iq1_s, iq1_m, iq2_xxs and iq2_xs, which make no sense
/// without an importance matrix.
bool can_encode(TensorType type);

/// Encodes `n` floats (a multiple of the block length) to blocks, as the stock encoders do without an importance
/// matrix.
void encode(TensorType type, const float* values, std::byte* blocks, int64_t n);

}  // namespace moetier
