// Writes GGUF v3, streaming tensor data, so that a file of any size needs little memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "gguf/value.h"
#include "quant/tensor_type.h"

namespace moetier {

/// Usage: set() metadata, add_tensor() for all tensors, then write(). The file appears whole or not at all.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t alignment = 32);

  /// Adds or replaces a key, keeping first-set order.
  void set(const std::string& key, GgufValue value);
  void set_strings(const std::string& key, std::vector<std::string> values);
  void set_ints(const std::string& key, std::vector<int32_t> values);
  void set_floats(const std::string& key, std::vector<float> values);

  /// `shape` has 1 to 4 dimensions in GGUF order. Data comes at write(), from `produce`, which must call its sink with exactly
  /// the tensor's bytes, in as many pieces as it likes.
  using Sink = std::function<void(const void* data, size_t bytes)>;
  void add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape, std::function<void(const Sink&)> produce);
  /// The same with the data at hand (copied).
  void add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape, std::vector<std::byte> data);

  /// Bytes the file will have.
  uint64_t file_bytes() const;
  /// Writes `path` (beside, then renamed). `progress(done, total)` in bytes of tensor data, may be empty.
  void write(const std::string& path, const std::function<void(uint64_t, uint64_t)>& progress = {}) const;

 private:
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<int64_t> shape;
    uint64_t bytes;
    std::function<void(const Sink&)> produce;
  };
  std::string header() const;
  uint32_t alignment_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace moetier
