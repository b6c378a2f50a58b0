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
    case TensorType::iq4_xs:
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq1_s:
      return {0};
    case TensorType::q2_k:
      return {80, 82};
    case TensorType::q3_k:
      return {108};
    case TensorType::tq1_0:
      return {52};
    case TensorType::tq2_0:
      return {64};
    default:
      return {};
  }
}

/// IQ1_M keeps its f16 in the top nibbles of the four words at byte 48: puts it there.
inline void put_iq1_m_scale(std::byte* block, unsigned f16) {
  for (size_t r = 0; r < 4; ++r) {
    std::byte& top = block[48 + 2 * r + 1];
    top = (top & std::byte{0x0f}) | static_cast<std::byte>((f16 >> (4 * r) & 15u) << 4);
  }
}

}  // namespace moetier::test
