// The values of a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moetier {

/// Ids as files use them.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

struct GgufArray;

/// One metadata value. Arrays are kept typed: an array of n strings is a vector of strings, not of n values.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                               std::shared_ptr<const GgufArray>, uint64_t, int64_t, double>;

/// An array: its element type and the elements. Nested arrays hold arrays.
struct GgufArray {
  GgufType element_type = GgufType::u8;
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
               std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
               std::vector<std::string>, std::vector<std::shared_ptr<const GgufArray>>, std::vector<uint64_t>,
               std::vector<int64_t>, std::vector<double>>
      elements;
  uint64_t size() const {
    return std::visit([](const auto& v) { return static_cast<uint64_t>(v.size()); }, elements);
  }
};

GgufType gguf_type(const GgufValue& value);
/// As people write it: "u32", "string", "array". "unknown" for an id outside the enumeration.
std::string_view gguf_type_name(GgufType type);
/// The fewest bytes one value of this type takes in a file: its width, or for a string or array its length fields. 0
/// for an unknown id.
uint64_t gguf_type_min_bytes(GgufType type);

}  // namespace moetier
