#include "compute/cpu/operand.h"

#include "base/error.h"
#include "compute/cpu/buffer.h"

namespace moetier::cpu {
namespace {

std::string shape_text(const std::array<int64_t, 4>& shape) {
  return fmt::format("[{}, {}, {}, {}]", shape[0], shape[1], shape[2], shape[3]);
}

/// Bytes from the first element to past the last; fails on a negative or overflowing extent.
size_t extent(const Tensor& tensor, OperandName name) {
  int64_t rows = 1;
  bool sound = tensor.shape[0] >= 0;
  for (int axis = 1; axis < 4; ++axis) {
    sound = sound && tensor.shape[axis] >= 0 && !__builtin_mul_overflow(rows, tensor.shape[axis], &rows);
  }
  if (!sound) {
    fail("{}: {} has the impossible shape {}", name.operation, name.operand, shape_text(tensor.shape));
  }
  if (rows == 0 || tensor.shape[0] == 0) return 0;
  const size_t row = row_bytes(tensor.type, tensor.shape[0]);
  size_t bytes = 0;
  if ((rows > 1 && tensor.row_stride < row) ||
      __builtin_mul_overflow(static_cast<size_t>(rows - 1), tensor.row_stride, &bytes) ||
      __builtin_add_overflow(bytes, row, &bytes)) {
    fail("{}: {} has rows {} bytes apart, which its shape {} does not allow", name.operation, name.operand,
         tensor.row_stride, shape_text(tensor.shape));
  }
  return bytes;
}

}  // namespace

std::byte* checked_address(const Tensor& tensor, TensorType type, size_t alignment, OperandName name) {
  if (tensor.empty()) fail("{}: {} is missing", name.operation, name.operand);
  if (tensor.type != type) {
    fail("{}: {} is of type {}, but {} is needed", name.operation, name.operand, type_name(tensor.type),
         type_name(type));
  }
  const size_t bytes = extent(tensor, name);
  const size_t available = tensor.buffer->bytes();
  if (tensor.offset > available || bytes > available - tensor.offset) {
    fail("{}: {} with shape {} needs {} bytes from {}, but its buffer has {}", name.operation, name.operand,
         shape_text(tensor.shape), bytes, tensor.offset, available);
  }
  std::byte* address = tensor.buffer->host() + tensor.offset;
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0 ||
      (tensor.rows() > 1 && tensor.row_stride % alignment != 0)) {
    fail("{}: the rows of {} do not begin at multiples of {} bytes", name.operation, name.operand, alignment);
  }
  return address;
}

std::byte* checked_target(const Tensor& tensor, TensorType type, size_t alignment, OperandName name) {
  std::byte* address = checked_address(tensor, type, alignment, name);
  if (!writable(*tensor.buffer)) fail("{}: {} lies in read-only memory", name.operation, name.operand);
  return address;
}

FloatsIn floats_in(const Tensor& tensor, OperandName name) {
  const std::byte* at = checked_address(tensor, TensorType::f32, alignof(float), name);
  return {at, tensor.shape[0], tensor.rows(), tensor.row_stride};
}

FloatsOut floats_out(const Tensor& tensor, OperandName name) {
  std::byte* at = checked_target(tensor, TensorType::f32, alignof(float), name);
  return {at, tensor.shape[0], tensor.rows(), tensor.row_stride};
}

IntsIn ints_in(const Tensor& tensor, OperandName name) {
  const std::byte* at = checked_address(tensor, TensorType::i32, alignof(int32_t), name);
  return {at, tensor.shape[0], tensor.rows(), tensor.row_stride};
}

IntsOut ints_out(const Tensor& tensor, OperandName name) {
  std::byte* at = checked_target(tensor, TensorType::i32, alignof(int32_t), name);
  return {at, tensor.shape[0], tensor.rows(), tensor.row_stride};
}

void require_shape(const Tensor& tensor, std::array<int64_t, 4> shape, OperandName name) {
  if (tensor.shape != shape) {
    fail("{}: {} has shape {}, but {} is needed", name.operation, name.operand, shape_text(tensor.shape),
         shape_text(shape));
  }
}

}  // namespace moetier::cpu
