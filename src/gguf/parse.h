// One GGUF file's header, checked. Used by GgufFile, which joins the files of a set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/reader.h"
#include "gguf/value.h"

namespace moetier {

struct ParsedGguf {
  uint32_t version = 0;
  uint64_t data_offset = 0;  ///< where tensor data begins, at most the file's size
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<TensorInfo> tensors;  ///< shard 0, offsets from the start of the file; every tensor lies inside it
};

/// Limits of what is accepted.
inline constexpr int kMaxArrayDepth = 4;             ///< arrays in arrays
inline constexpr uint64_t kMaxKeyBytes = 65535;      ///< of a metadata key
inline constexpr uint64_t kMaxTensorNameBytes = 63;  ///< of a tensor name

/// Checks everything but the tensor data. Errors name `file`, the field and its byte offset.
ParsedGguf parse_gguf(std::span<const std::byte> bytes, const std::string& file);

/// Positions of `items` in ascending order of their names, for binary search: unlike a hash table, no file can make it
/// slow.
template <typename Item, typename NameOf>
std::vector<uint32_t> order_by_name(const std::vector<Item>& items, NameOf name_of) {
  std::vector<uint32_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int c = name_of(items[a]).compare(name_of(items[b]));
    return c != 0 ? c < 0 : a < b;
  });
  return order;
}

/// A value as an integer: any integer type; nullopt for another kind or one beyond int64.
std::optional<int64_t> integer_of(const GgufValue& value);

}  // namespace moetier
