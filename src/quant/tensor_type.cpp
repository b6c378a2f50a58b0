#include "quant/tensor_type.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moetier {
namespace {

using enum TensorType;

constexpr std::array<TypeInfo, 35> kTypes{{
    {f32, "f32", 1, 4, true},
    {f16, "f16", 1, 2, true},
    {q4_0, "q4_0", 32, 18, true},
    {q4_1, "q4_1", 32, 20, true},
    {q5_0, "q5_0", 32, 22, true},
    {q5_1, "q5_1", 32, 24, true},
    {q8_0, "q8_0", 32, 34, true},
    {q8_1, "q8_1", 32, 36, false},
    {q2_k, "q2_k", 256, 84, true},
    {q3_k, "q3_k", 256, 110, true},
    {q4_k, "q4_k", 256, 144, true},
    {q5_k, "q5_k", 256, 176, true},
    {q6_k, "q6_k", 256, 210, true},
    {q8_k, "q8_k", 256, 292, false},
    {iq2_xxs, "iq2_xxs", 256, 66, true},
    {iq2_xs, "iq2_xs", 256, 74, true},
    {iq3_xxs, "iq3_xxs", 256, 98, true},
    {iq1_s, "iq1_s", 256, 50, true},
    {iq4_nl, "iq4_nl", 32, 18, true},
    {iq3_s, "iq3_s", 256, 110, true},
    {iq2_s, "iq2_s", 256, 82, true},
    {iq4_xs, "iq4_xs", 256, 136, true},
    {i8, "i8", 1, 1, false},
    {i16, "i16", 1, 2, false},
    {i32, "i32", 1, 4, false},
    {i64, "i64", 1, 8, false},
    {f64, "f64", 1, 8, false},
    {iq1_m, "iq1_m", 256, 56, true},
    {bf16, "bf16", 1, 2, true},
    {tq1_0, "tq1_0", 256, 54, true},
    {tq2_0, "tq2_0", 256, 66, true},
    {mxfp4, "mxfp4", 32, 17, true},
    {nvfp4, "nvfp4", 64, 36, true},
    {q1_0, "q1_0", 128, 18, false},
    {q2_0, "q2_0", 64, 18, false},
}};

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::span<const TypeInfo> known_types() {
  return kTypes;
}

const TypeInfo* find_type(int32_t id) {
  const auto* it = std::ranges::find(kTypes, id, [](const TypeInfo& t) { return static_cast<int32_t>(t.type); });
  return it == kTypes.end() ? nullptr : it;
}

const TypeInfo* find_type(std::string_view name) {
  const auto* it = std::ranges::find_if(kTypes, [&](const TypeInfo& t) {
    return std::ranges::equal(t.name, name, [](char a, char b) { return a == lower(b); });
  });
  return it == kTypes.end() ? nullptr : it;
}

const TypeInfo& type_info(TensorType type) {
  const TypeInfo* info = find_type(static_cast<int32_t>(type));
  if (info == nullptr) fail("there is no tensor type with id {}", static_cast<int32_t>(type));
  return *info;
}

size_t row_bytes(TensorType type, int64_t columns) {
  const TypeInfo& info = type_info(type);
  if (columns < 0 || columns % info.block_length != 0) {
    fail("a row of {} weights cannot be {}: its length must be a multiple of {}", columns, info.name,
         info.block_length);
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(columns / info.block_length), info.block_bytes, &bytes)) {
    fail("a row of {} weights of type {} has more bytes than this machine can count", columns, info.name);
  }
  return bytes;
}

}  // namespace moetier
