// Where a block of each type keeps its f16 numbers, for tests that make blocks by hand.
#pragma once

#include <cstddef>
#include <vector>

#include "quant/tensor_type.h"

namespace moetier::test {

/// Offsets of the f16 fields in a block of `type`.
inline std::vector<size_t> f16_fields(TensorType type) {
  switch (type) {
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {0, 2};
    case TensorType::q6_k:
      return {208};
    case TensorType::f16:
    case TensorType::q4_0:
    case TensorType::q5_0:
    case TensorType::q8_0:
    case TensorType::iq4_nl:
      return {0};
    default:
      return {};
  }
}

}  // namespace moetier::test
