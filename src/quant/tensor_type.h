// The tensor types a GGUF file may hold: how long a block is, in weights and in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moetier {

/// Values are the ids that GGUF files use.
enum class TensorType : int32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  ///< as users write it, lower case: "q4_k"
  int64_t block_length;   ///< weights in a block
  size_t block_bytes;     ///< bytes in a block
  bool computable;        ///< decode() and matmul exist
};

/// All known types, by id.
std::span<const TypeInfo> known_types();
/// nullptr if `id` is not a type this program knows.
const TypeInfo* find_type(int32_t id);
/// nullptr if no type has that name (case does not matter).
const TypeInfo* find_type(std::string_view name);
/// The type must be a known one.
const TypeInfo& type_info(TensorType type);
inline std::string_view type_name(TensorType type) {
  return type_info(type).name;
}
/// Bytes of one row of `columns` weights; columns must be a multiple of the block length.
size_t row_bytes(TensorType type, int64_t columns);

}  // namespace moetier
