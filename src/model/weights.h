// Binds the tensors of a GGUF file to a graph: names, shapes and types are checked, dense weights are read where they
// are mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "compute/compute.h"
#include "gguf/reader.h"

namespace moetier {

/// The memory behind a model's dense weights.
struct DenseWeights {
  std::vector<std::unique_ptr<Buffer>> buffers;
  uint64_t bytes = 0;  ///< as the file has them
};

/// Hands out tensors by name. Every error names the file, the tensor, and the shape or type that was wanted.
class WeightBinder {
 public:
  WeightBinder(const GgufFile& file, Compute& compute);

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  /// A weight matrix [columns, rows] of any computable type, bound in place.
  Tensor matrix(const std::string& name, int64_t columns, int64_t rows);
  /// A vector in f32; other types are decoded once.
  Tensor vector(const std::string& name, int64_t length);
  /// A matrix in f32, whatever its type: small ones that are added, not multiplied.
  Tensor floats(const std::string& name, int64_t columns, int64_t rows);
  /// The same, or an empty tensor where the file has none of that name.
  Tensor matrix_if(const std::string& name, int64_t columns, int64_t rows);
  Tensor vector_if(const std::string& name, int64_t length);
  /// A table of whole numbers (i32) [columns, rows], bound in place; one outside [0, most] is an error.
  Tensor table(const std::string& name, int64_t columns, int64_t rows, int32_t most);
  /// A matrix [columns, rows] of the file as f32 [rows, columns]; and n times the same number.
  /// With `apart`, the file's shape is [columns, 1, rows].
  Tensor transposed(const std::string& name, int64_t columns, int64_t rows, bool apart = false);
  Tensor constant(int64_t n, float value);
  /// A matrix [columns, rows] for each of `count` heads, bound in place.
  Tensor stack(const std::string& name, int64_t columns, int64_t rows, int64_t count);
  /// Checks a stack of expert matrices [columns, rows, experts], which the store serves, and gives its type.
  TensorType expert_stack(const std::string& name, int64_t columns, int64_t rows, int64_t experts);
  /// The factor that goes with the products of `weight` ("blk.0.attn_q.weight"): the one element of its companion
  /// `.scale`, which NVFP4 files have; 1 without.
  float scale(std::string_view weight);
  /// The same for a stack of experts: one each, or empty.
  std::vector<float> expert_scales(std::string_view weight, int64_t experts);

  /// Warns once if the file has tensors that the graph did not ask for, save in blocks from `layers` on. A `.scale`
  /// that nobody asked for is an error if its weight is used.
  void warn_unused(int layers) const;
  /// Hands over the memory of all that was bound; the binder is done.
  DenseWeights take() { return std::move(dense_); }

 private:
  /// Why the file's tensor of that name will not do, or "".
  std::string problem(const std::string& name, const std::array<int64_t, 4>& shape, bool whole_numbers) const;
  /// The tensor; nullptr where it will not do and a survey goes on (survey.h), with stand_in() in its place.
  const TensorInfo* checked(const std::string& name, const std::array<int64_t, 4>& shape, bool whole_numbers = false);
  Tensor stand_in(std::array<int64_t, 4> shape);
  Tensor bind(const std::string& name, const std::array<int64_t, 4>& shape);
  Tensor bind_in_place(const TensorInfo& info);
  Tensor own(std::array<int64_t, 4> shape, const std::vector<float>& values);
  std::vector<float> companion(std::string_view weight, int64_t length);

  const GgufFile& file_;
  Compute& compute_;
  std::string architecture_;
  std::unordered_set<std::string> used_;
  DenseWeights dense_;
};

}  // namespace moetier
