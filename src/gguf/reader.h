// Reads GGUF v2 and v3, one file or a split set, without copying tensor data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/value.h"
#include "quant/tensor_type.h"

namespace moetier {

/// One tensor of a file. `shape` is in GGUF order: shape[0] is the contiguous axis; missing dimensions are 1.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::f32;
  std::array<int64_t, 4> shape{1, 1, 1, 1};
  int n_dims = 1;
  int shard = 0;        ///< index into GgufFile::shards()
  uint64_t offset = 0;  ///< bytes from the start of that shard's file
  uint64_t bytes = 0;   ///< size of the data
  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

/// A GGUF model: metadata of the first shard, tensors of all shards. Everything in the files is checked before use
/// (counts, lengths, offsets, shapes, types; promise 6); errors name the file, the field and its byte offset. Files
/// stay mapped while it lives.
class GgufFile {
 public:
  /// Opens a file, or the whole split set when handed any `-00001-of-0000N.gguf` shard.
  static GgufFile open(const std::string& path);
  /// Parses one in-memory file (tests, fuzzers), a shard as if it were whole; `name` stands in errors. The bytes must
  /// outlive the object.
  static GgufFile parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const;  ///< as given to open()
  uint32_t version() const;
  uint64_t file_bytes() const;  ///< of all shards together
  struct Shard {
    std::string path;
    uint64_t bytes;
    uint64_t data_offset;  ///< where the tensor data begins
  };
  std::span<const Shard> shards() const;
  std::span<const std::byte> shard_bytes(size_t shard) const;  ///< all of that file, as mapped

  // --- metadata, in file order ---
  std::span<const std::pair<std::string, GgufValue>> metadata() const;
  const GgufValue* find(std::string_view key) const;  ///< nullptr if absent

  /// Typed getters. A key of another kind is an error that names file and key. Integers of any width are accepted where
  /// an integer is wanted (range checked; in arrays bools too, as 0 and 1), and integers where a float is wanted. A
  /// scalar float must be finite.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  std::optional<std::vector<int64_t>> get_ints(
      std::string_view key) const;  ///< an array, or one scalar as an array of one
  std::optional<std::vector<float>> get_floats(std::string_view key) const;
  const std::vector<std::string>* get_strings(std::string_view key) const;  ///< nullptr if absent
  /// The same, but absence is an error that names file and key.
  int64_t need_int(std::string_view key) const;
  double need_float(std::string_view key) const;
  std::string need_string(std::string_view key) const;

  /// `KEY=TYPE:VALUE` overrides (TYPE int, float, bool, str), applied to what find() and the getters answer; metadata()
  /// stays as the file has it. A usage error if malformed.
  void override_metadata(std::string_view spec);
  /// An integer as the file has it, whatever the overrides; nullopt if there is none.
  std::optional<int64_t> own_int(std::string_view key) const;

  // --- tensors, in file order ---
  std::span<const TensorInfo> tensors() const;
  const TensorInfo* find_tensor(std::string_view name) const;  ///< nullptr if absent
  /// The bytes of a tensor: mapped, or where relocate() put them.
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  /// From now on data() of this tensor is `bytes`, a copy of what the file has, which must outlive the object.
  void relocate(const TensorInfo& tensor, std::span<const std::byte> bytes);

 private:
  struct Impl;
  explicit GgufFile(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  ///< copies share it, overrides included
};

/// The N of a tensor named `blk.N.`...; -1 for others.
int block_number(std::string_view tensor_name);

}  // namespace moetier
