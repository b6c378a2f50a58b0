// What a GgufFile holds; private to this room.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "gguf/parse.h"
#include "gguf/reader.h"

namespace moetier {

struct GgufFile::Impl {
  std::string path;
  uint32_t version = 0;
  std::vector<MappedFile> maps;                   ///< per shard; none for parse()
  std::vector<std::span<const std::byte>> bytes;  ///< per shard
  std::vector<Shard> shards;
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<TensorInfo> tensors;
  std::vector<uint32_t> metadata_order, tensor_order;  ///< by name
  std::map<std::string, GgufValue, std::less<>> overrides;
  const GgufValue* own(std::string_view key) const;                          ///< as the file has it; nullptr if absent
  std::map<std::string, std::span<const std::byte>, std::less<>> relocated;  ///< tensors by name

  /// Once metadata and tensors are complete.
  void index();
};

}  // namespace moetier
