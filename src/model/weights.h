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
  /// Refuses a file with `.scale` companions (NVFP4 files have them), which no graph here applies.
  WeightBinder(const GgufFile& file, Compute& compute);

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  /// A weight matrix [columns, rows] of any computable type, bound in place.
  Tensor matrix(const std::string& name, int64_t columns, int64_t rows);
  /// A vector in f32; other types are decoded once.
  Tensor vector(const std::string& name, int64_t length);
  /// The same, or an empty tensor where the file has none of that name.
  Tensor matrix_if(const std::string& name, int64_t columns, int64_t rows);
  Tensor vector_if(const std::string& name, int64_t length);
  /// Checks a stack of expert matrices [columns, rows, experts], which the store serves, and gives its type.
  TensorType expert_stack(const std::string& name, int64_t columns, int64_t rows, int64_t experts);

  /// Warns once if the file has tensors that the graph did not ask for, save in blocks from `layers` on.
  void warn_unused(int layers) const;
  /// Hands over the memory of all that was bound; the binder is done.
  DenseWeights take() { return std::move(dense_); }

 private:
  const TensorInfo& checked(const std::string& name, const std::array<int64_t, 4>& shape);
  Tensor bind_in_place(const TensorInfo& info);

  const GgufFile& file_;
  Compute& compute_;
  std::string architecture_;
  std::unordered_set<std::string> used_;
  DenseWeights dense_;
};

}  // namespace moetier
