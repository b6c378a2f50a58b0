// What an operation is given: a typed, shaped view into a backend's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/tensor_type.h"

namespace moetier {

/// How the bytes of a weight matrix are arranged. Every layout gives the same bits (design: a slice's layout tag).
enum class Layout : uint8_t {
  file,  ///< as GGUF has it: row after row of blocks
};

/// Memory that belongs to a backend.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t bytes() const = 0;
  /// The address on the host, or nullptr where the host cannot reach it. Only a CPU backend's own code asks.
  virtual std::byte* host() const = 0;
};

/// A view; cheap to copy, owns nothing. shape[0] is the contiguous axis; `row_stride` is the distance in bytes between neighbours
/// along axis 1; axes 2 and 3 follow packed (axis 2 stride = shape[1] * row_stride, and so on).
struct Tensor {
  Buffer* buffer = nullptr;
  size_t offset = 0;  ///< bytes
  TensorType type = TensorType::f32;
  Layout layout = Layout::file;
  std::array<int64_t, 4> shape{0, 1, 1, 1};
  size_t row_stride = 0;  ///< bytes

  bool empty() const { return buffer == nullptr; }
  int64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  int64_t elements() const { return shape[0] * rows(); }
  size_t bytes() const { return static_cast<size_t>(rows()) * row_stride; }

  /// A packed tensor of the given shape at `offset` of `buffer`.
  static Tensor packed(Buffer* buffer, size_t offset, TensorType type, std::array<int64_t, 4> shape) {
    return {buffer, offset, type, Layout::file, shape, row_bytes(type, shape[0])};
  }
  /// The first n entries of axis 1 (axes 2 and 3 must be 1).
  Tensor head_rows(int64_t n) const { return slice_rows(0, n); }
  /// n entries of axis 1 from `first` (axes 2 and 3 must be 1).
  Tensor slice_rows(int64_t first, int64_t n) const {
    Tensor t = *this;
    t.offset += static_cast<size_t>(first) * row_stride;
    t.shape[1] = n;
    return t;
  }
  /// Columns [first, first + n) of every row, for types with one weight per block.
  Tensor slice_columns(int64_t first, int64_t n) const {
    Tensor t = *this;
    t.offset += row_bytes(type, first);
    t.shape[0] = n;
    return t;
  }
  /// The same packed memory under another shape with as many elements (rows must be packed).
  Tensor reshaped(std::array<int64_t, 4> to) const { return packed(buffer, offset, type, to); }
};

}  // namespace moetier
