// Writes GGUF v3, streaming tensor data, so that a file of any size needs little memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gguf/value.h"
#include "quant/tensor_type.h"

namespace moetier {

/// Usage: set() metadata, add_tensor() for all tensors, then write(). The file appears whole or not at all. What a
/// reader would refuse (shapes, names, duplicates, lengths) is refused here, with an error that names it.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t alignment = 32);

  /// Adds or replaces a key, keeping first-set order. `general.alignment` (u32) sets the alignment. Keys that begin
  /// with `split.` are left out, since the writer knows the split: so all metadata of a model can be passed on as it
  /// is.
  void set(const std::string& key, GgufValue value);
  void set_strings(const std::string& key, std::vector<std::string> values);
  void set_ints(const std::string& key, std::vector<int32_t> values);
  void set_floats(const std::string& key, std::vector<float> values);

  /// `shape` has 1 to 4 dimensions in GGUF order. Data comes at write(), from `produce`, which must call its sink with
  /// exactly the tensor's bytes, in as many pieces as it likes.
  using Sink = std::function<void(const void* data, size_t bytes)>;
  void add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape,
                  std::function<void(const Sink&)> produce);
  /// The same with the data at hand (copied).
  void add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape, std::vector<std::byte> data);

  /// Bytes the file will have.
  uint64_t file_bytes() const;
  /// `progress(done, total)` in bytes of tensor data, may be empty.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;
  /// Writes `path` (beside, then renamed). Fails before writing if the file system lacks the room.
  void write(const std::string& path, const Progress& progress = {}) const;
  /// Writes PREFIX-00001-of-0000N.gguf and so on: all metadata in the first shard, tensors in order, about equal in
  /// bytes. Shards beyond the number of tensors are empty. The first shard appears last, so that an unfinished set
  /// cannot be opened.
  void write_split(const std::string& prefix, int n_shards, const Progress& progress = {}) const;

 private:
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<int64_t> shape;
    uint64_t bytes;
    std::function<void(const Sink&)> produce;
  };
  /// Tensors [first, last) of the file or shard.
  struct Range {
    size_t first, last;
  };
  using Metadata = std::vector<std::pair<std::string, GgufValue>>;
  void add(Tensor tensor);
  std::string header(const Metadata& metadata, Range range) const;
  void write_file(const std::string& path, const Metadata& metadata, Range range, uint64_t& done, uint64_t total,
                  const Progress& progress) const;
  Metadata own_metadata() const;
  uint32_t alignment_;
  Metadata metadata_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> names_;
};

}  // namespace moetier
