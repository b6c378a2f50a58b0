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

/// True if encode() knows the type: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k, mxfp4 (and the fallbacks q5_0, q5_1, q4_1,
/// q5_k).
bool can_encode(TensorType type);

/// Encodes `n` floats (a multiple of the block length) to blocks, as the stock encoders do without an importance
/// matrix.
void encode(TensorType type, const float* values, std::byte* blocks, int64_t n);

}  // namespace moetier
