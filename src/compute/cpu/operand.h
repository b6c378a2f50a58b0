// Tensors as the CPU's operations walk them: checked once at the operation's entry, then plain rows.
//
// A wrong shape is a programming error, but it must end in a sentence and never in somebody's memory.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "compute/tensor.h"

namespace moetier::cpu {

/// `rows` rows of `columns` elements, `stride` bytes from row to row. T is const for inputs.
template <typename T>
struct Rows {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  Byte* base = nullptr;
  int64_t columns = 0, rows = 0;
  size_t stride = 0;

  T* row(int64_t r) const { return reinterpret_cast<T*>(base + static_cast<size_t>(r) * stride); }
};

using FloatsIn = Rows<const float>;
using FloatsOut = Rows<float>;
using IntsIn = Rows<const int32_t>;
using IntsOut = Rows<int32_t>;

/// Where an operand stands in an error message: "rms_norm" and "weight", say.
struct OperandName {
  const char* operation;
  const char* operand;
};

/// The address of a tensor whose every row lies in its buffer, whose type is `type`, aligned to `alignment`; fails
/// otherwise.
std::byte* checked_address(const Tensor& tensor, TensorType type, size_t alignment, OperandName name);
/// The same for a tensor that will be written: its buffer must not be wrapped memory.
std::byte* checked_target(const Tensor& tensor, TensorType type, size_t alignment, OperandName name);

FloatsIn floats_in(const Tensor& tensor, OperandName name);
FloatsOut floats_out(const Tensor& tensor, OperandName name);
IntsIn ints_in(const Tensor& tensor, OperandName name);
IntsOut ints_out(const Tensor& tensor, OperandName name);

/// Fails unless the tensor has exactly this shape.
void require_shape(const Tensor& tensor, std::array<int64_t, 4> shape, OperandName name);

/// The i-th of a tensor of i32 [n].
inline int32_t at(const IntsIn& ints, int64_t i) {
  return ints.row(0)[i];
}

}  // namespace moetier::cpu
