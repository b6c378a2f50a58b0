#include "gguf/check.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "gguf/cursor.h"

namespace moetier {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 20;

enum class Number : uint8_t { f16, bf16, f32, f64, e8m0, iq1_m_scale };

/// A number in each block, `at` bytes from its start.
struct BlockNumber {
  Number kind;
  uint16_t at;
  std::string_view name;
};

std::span<const BlockNumber> numbers_of(TensorType type) {
  using enum Number;
  static constexpr BlockNumber kF32[] = {{f32, 0, "weight"}}, kF16[] = {{f16, 0, "weight"}},
                               kBf16[] = {{bf16, 0, "weight"}}, kF64[] = {{f64, 0, "weight"}};
  static constexpr BlockNumber kD[] = {{f16, 0, "scale"}}, kDM[] = {{f16, 0, "scale"}, {f16, 2, "minimum"}};
  static constexpr BlockNumber kMxfp4[] = {{e8m0, 0, "scale exponent"}}, kQ8K[] = {{f32, 0, "scale"}};
  static constexpr BlockNumber kQ2K[] = {{f16, 80, "scale"}, {f16, 82, "minimum"}}, kQ3K[] = {{f16, 108, "scale"}};
  static constexpr BlockNumber kQ6K[] = {{f16, 208, "scale"}}, kIq1M[] = {{iq1_m_scale, 48, "scale"}};
  static constexpr BlockNumber kTq1[] = {{f16, 52, "scale"}}, kTq2[] = {{f16, 64, "scale"}};
  switch (type) {
    case TensorType::f32:
      return kF32;
    case TensorType::f16:
      return kF16;
    case TensorType::bf16:
      return kBf16;
    case TensorType::f64:
      return kF64;
    case TensorType::q4_0:
    case TensorType::q5_0:
    case TensorType::q8_0:
    case TensorType::iq4_nl:
    case TensorType::iq4_xs:
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq1_s:
    case TensorType::q1_0:
    case TensorType::q2_0:
      return kD;
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q8_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return kDM;
    case TensorType::q2_k:
      return kQ2K;
    case TensorType::q3_k:
      return kQ3K;
    case TensorType::q6_k:
      return kQ6K;
    case TensorType::q8_k:
      return kQ8K;
    case TensorType::iq1_m:
      return kIq1M;
    case TensorType::tq1_0:
      return kTq1;
    case TensorType::tq2_0:
      return kTq2;
    case TensorType::mxfp4:
      return kMxfp4;
    case TensorType::nvfp4:
    case TensorType::i8:
    case TensorType::i16:
    case TensorType::i32:
    case TensorType::i64:
      return {};
  }
  return {};
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// False for infinities and NaN: all bits of the exponent set (for E8M0, the byte that stands for NaN).
bool is_finite(Number kind, const std::byte* at) {
  switch (kind) {
    case Number::f16:
      return (load<uint16_t>(at) & 0x7c00u) != 0x7c00u;
    case Number::bf16:
      return (load<uint16_t>(at) & 0x7f80u) != 0x7f80u;
    case Number::f32:
      return (load<uint32_t>(at) & 0x7f800000u) != 0x7f800000u;
    case Number::f64:
      return (load<uint64_t>(at) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
    case Number::e8m0:
      return load<uint8_t>(at) != 255;
    case Number::iq1_m_scale: {
      // The scale is an f16 in four nibbles: the top one of each of the four u16 words, least significant first.
      const uint16_t top = load<uint16_t>(at + 6), next = load<uint16_t>(at + 4);
      return (((top & 0xf000u) | ((next & 0xf000u) >> 4)) & 0x7c00u) != 0x7c00u;
    }
  }
  return true;
}

/// Blocks [first, last) of a tensor.
void check_blocks(const GgufFile& file, const TensorInfo& tensor, uint64_t first, uint64_t last) {
  const TypeInfo& type = type_info(tensor.type);
  const std::byte* data = file.data(tensor).data();
  for (const BlockNumber& number : numbers_of(tensor.type)) {
    const std::byte* at = data + first * type.block_bytes + number.at;
    for (uint64_t block = first; block < last; ++block, at += type.block_bytes) {
      if (is_finite(number.kind, at)) continue;
      fail(
          "{}: tensor {} ({}): the {} of block {} at byte {} is not a finite number; the file is damaged, fetch it "
          "again",
          file.shards()[static_cast<size_t>(tensor.shard)].path, quote(tensor.name), type.name, number.name, block,
          tensor.offset + block * type.block_bytes + number.at);
    }
  }
}

}  // namespace

void check_tensor_data(const GgufFile& file, const TensorInfo& tensor) {
  check_blocks(file, tensor, 0, tensor.bytes / type_info(tensor.type).block_bytes);
}

void check_tensor_data(const GgufFile& file, const std::function<void(uint64_t, uint64_t)>& progress) {
  uint64_t done = 0, total = 0;
  for (const TensorInfo& tensor : file.tensors()) total += tensor.bytes;
  for (const TensorInfo& tensor : file.tensors()) {
    const uint64_t block_bytes = type_info(tensor.type).block_bytes;
    const uint64_t blocks = tensor.bytes / block_bytes, piece = kPieceBytes / block_bytes;
    for (uint64_t first = 0; first < blocks; first += piece) {
      const uint64_t last = std::min(blocks, first + piece);
      check_blocks(file, tensor, first, last);
      done += (last - first) * block_bytes;
      if (progress) progress(done, total);
    }
  }
}

}  // namespace moetier
