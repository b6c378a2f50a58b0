// Golden blocks and floats of the reference, and random inputs, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "quant/f16_fields.h"
#include "quant/tensor_type.h"

namespace moetier::testing {

inline const std::vector<TensorType>& computable_types() {
  static const std::vector<TensorType> types = [] {
    std::vector<TensorType> found;
    for (const TypeInfo& info : known_types()) {
      if (info.computable) found.push_back(info.type);
    }
    return found;
  }();
  return types;
}

/// A file of tests/data/quant as bytes, in a buffer of exactly its size.
inline std::vector<std::byte> golden_bytes(const std::string& name) {
  const std::string text = read_file(std::string(MOETIER_TEST_DATA) + "/quant/" + name);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<float> golden_floats(const std::string& name) {
  const std::vector<std::byte> bytes = golden_bytes(name);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

inline std::vector<float> normal_floats(size_t n, unsigned seed, float sigma = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> floats(n);
  std::generate(floats.begin(), floats.end(), [&] { return normal(random); });
  return floats;
}

/// Random blocks whose numbers are all finite.
inline std::vector<std::byte> random_blocks(TensorType type, size_t n_blocks, unsigned seed) {
  std::mt19937 random(seed);
  const size_t block_bytes = type_info(type).block_bytes;
  std::vector<std::byte> bytes(n_blocks * block_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 255);
  for (size_t block = 0; block < n_blocks; ++block) {
    std::byte* at = bytes.data() + block * block_bytes;
    for (const size_t field : test::f16_fields(type)) {
      if ((at[field + 1] & std::byte{0x7c}) == std::byte{0x7c}) at[field + 1] ^= std::byte{0x40};
    }
    if (type == TensorType::iq1_m) at[55] &= std::byte{0xbf};  // the f16 in the top nibbles
    if (type == TensorType::mxfp4 && at[0] > std::byte{250}) at[0] = std::byte{250};
    const size_t sign_exponent = type == TensorType::f32 ? 3 : 1;
    if (type == TensorType::f32 || type == TensorType::bf16) at[sign_exponent] &= std::byte{0xbf};
  }
  return bytes;
}

}  // namespace moetier::testing
