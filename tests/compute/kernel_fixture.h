// What the kernels' tests share: weights of every type, ordinary and hostile, and plain formulas to hold them against.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "compute/compute_fixture.h"
#include "compute/cpu/activation_codes.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/isa.h"
#include "quant/codec.h"
#include "quant/f16_fields.h"
#include "quant/half.h"
#include "quant/tensor_type.h"

namespace moetier::testing_compute {

using Bytes = std::vector<std::byte>;

inline const std::vector<TensorType>& kernel_types() {
  static const std::vector<TensorType> types{
      TensorType::f32,     TensorType::f16,    TensorType::bf16,   TensorType::q8_0,    TensorType::q4_0,
      TensorType::q4_1,    TensorType::q5_0,   TensorType::q5_1,   TensorType::q4_k,    TensorType::q5_k,
      TensorType::q6_k,    TensorType::iq4_nl, TensorType::mxfp4,  TensorType::q2_k,    TensorType::q3_k,
      TensorType::iq2_xxs, TensorType::iq2_xs, TensorType::iq2_s,  TensorType::iq3_xxs, TensorType::iq3_s,
      TensorType::iq1_s,   TensorType::iq1_m,  TensorType::iq4_xs, TensorType::tq1_0,   TensorType::tq2_0,
      TensorType::nvfp4,
  };
  return types;
}

inline std::string type_test_name(const testing::TestParamInfo<TensorType>& info) {
  return std::string(type_name(info.param));
}

/// How weights are filled.
enum class Fill {
  ordinary,  ///< random codes, scales about 0.01
  largest,   ///< the largest codes, scales of ordinary size
  smallest,  ///< codes 0 (and -128 for the signed bytes), scales of ordinary size
  scales,    ///< random codes, scales 0, -0, denormal, the largest, negative
  broken,    ///< random codes, scales NaN and infinite among others
};

inline uint16_t scale_bits(Fill fill, std::mt19937& random) {
  static constexpr uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x2400, 0xa400};
  static constexpr uint16_t broken[] = {0x7e00, 0xfe01, 0x7c00, 0xfc00, 0x7c01, 0x2400, 0x0000, 0x7bff};
  if (fill == Fill::scales) return odd[random() % 8];
  if (fill == Fill::broken) return broken[random() % 8];
  const float size = 0.005f + 0.01f * static_cast<float>(random() % 1000) / 1000.0f;
  return f32_to_f16(random() % 3 == 0 ? -size : size);
}

/// One float weight.
inline float float_weight(Fill fill, std::mt19937& random) {
  static constexpr float odd[] = {0.0f, -0.0f, 0x1p-126f, -0x1p-149f, 0x1p-101f, 0x1p-100f, -0x1.8p-99f, 60000.0f};
  if (fill == Fill::largest) return 65504.0f;
  if (fill == Fill::smallest) return -0x1p-24f;
  if (fill == Fill::scales) return odd[random() % 8];
  if (fill == Fill::broken && random() % 8 == 0) return random() % 2 == 0 ? INFINITY : -NAN;
  return (static_cast<float>(random() % 20001) - 10000.0f) / 50000.0f;
}

/// Packed rows of weights.
inline Bytes make_weights(TensorType type, int64_t columns, int64_t rows, Fill fill, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(row_bytes(type, columns) * static_cast<size_t>(rows));
  const TypeInfo& info = type_info(type);
  if (info.block_length == 1) {
    for (size_t i = 0; i < bytes.size(); i += info.block_bytes) {
      const float w = float_weight(fill, random);
      const uint16_t half = type == TensorType::f16 ? f32_to_f16(w) : f32_to_bf16(w);
      if (info.block_bytes == 4) std::memcpy(&bytes[i], &w, 4);
      if (info.block_bytes == 2) std::memcpy(&bytes[i], &half, 2);
    }
    return bytes;
  }
  const auto lowest = static_cast<std::byte>(type == TensorType::q8_0 ? 0x80 : 0x00);
  const auto highest = static_cast<std::byte>(type == TensorType::q8_0 ? 0x7f : 0xff);
  for (std::byte& b : bytes) {
    b = fill == Fill::largest ? highest : fill == Fill::smallest ? lowest : static_cast<std::byte>(random());
  }
  for (size_t block = 0; block < bytes.size(); block += info.block_bytes) {
    for (const size_t offset : test::f16_fields(type)) {
      const uint16_t half = scale_bits(fill, random);
      std::memcpy(&bytes[block + offset], &half, 2);
    }
    if (type == TensorType::iq1_m) test::put_iq1_m_scale(&bytes[block], scale_bits(fill, random));
    if (type == TensorType::nvfp4) {
      static constexpr uint8_t odd[] = {0x00, 0x7f, 0x01, 0x07, 0x08, 0x7e, 0xff, 0xb8};
      for (size_t g = 0; g < 4; ++g) {
        bytes[block + g] = static_cast<std::byte>(fill == Fill::scales ? odd[random() % 8] : 1 + random() % 24);
      }
    }
    if (type == TensorType::q6_k && fill == Fill::smallest) {
      for (size_t i = 192; i < 208; ++i) bytes[block + i] = std::byte{0x80};
    }
    if (type == TensorType::mxfp4 && fill != Fill::broken) {
      static constexpr uint8_t odd[] = {0, 1, 27, 28, 29, 127, 200, 130};
      bytes[block] = static_cast<std::byte>(fill == Fill::scales ? odd[random() % 8] : 118 + random() % 6);
    }
  }
  return bytes;
}

/// Activations with everything in them that may go wrong, by `kind`.
inline Floats make_activations(size_t n, unsigned seed, int kind) {
  Floats x = noise(n, seed);
  std::mt19937 random(seed);
  static constexpr float odd[] = {0.0f, -0.0f, 0x1p-140f, -0x1p-120f, 0x1p-100f, 0x1.fffp-101f, 1e30f, -3e38f};
  for (size_t i = 0; i < n; ++i) {
    if (kind == 1) x[i] = x[i] < 0 ? -1.0f : 1.0f;  // all codes at the ends
    if (kind == 2) x[i] = odd[random() % 6];        // tiny
    if (kind == 3) x[i] = odd[random() % 8];        // tiny and huge
    if (kind == 4 && (i / 64) % 3 == 0) x[i] = 0.0f;
    if (kind == 5 && random() % 16 == 0) x[i] = random() % 2 == 0 ? NAN : -INFINITY;
  }
  return x;
}
inline constexpr int kActivationVariants = 6;

/// One row, encoded (or as it is, for floats) by the portable unit.
inline Bytes encode_row(ActivationKind kind, const float* x, int64_t columns, Isa isa = Isa::portable) {
  Bytes out(activation_row_bytes(kind, columns));
  if (kind == ActivationKind::floats) {
    std::memcpy(out.data(), x, out.size());
  } else {
    encode_activations(activation_encoders(isa), kind, x, out.data(), columns);
  }
  return out;
}

/// What an encoded row stands for.
inline std::vector<double> decode_row(ActivationKind kind, const Bytes& row, int64_t columns) {
  std::vector<double> out(static_cast<size_t>(columns));
  for (int64_t c = 0; c < columns; ++c) {
    const auto i = static_cast<size_t>(c);
    if (kind == ActivationKind::floats) {
      out[i] = reinterpret_cast<const float*>(row.data())[c];
    } else if (kind == ActivationKind::blocks32) {
      const Codes32& block = reinterpret_cast<const Codes32*>(row.data())[c / 32];
      out[i] = static_cast<double>(block.scale) * block.codes[c % 32];
    } else {
      const Codes256& block = reinterpret_cast<const Codes256*>(row.data())[c / 256];
      out[i] = static_cast<double>(block.scale) * block.codes[c % 256];
    }
  }
  return out;
}

/// A dot in f64 with the sum of its terms' magnitudes, which error bounds are relative to.
struct Exact {
  double value = 0, magnitude = 0;
};
inline Exact exact_dot(const std::vector<float>& w, const std::vector<double>& x) {
  Exact result;
  for (size_t i = 0; i < w.size(); ++i) {
    const double term = static_cast<double>(w[i]) * x[i];
    result.value += term;
    result.magnitude += std::fabs(term);
  }
  return result;
}

/// A weight tensor with these packed rows.
inline Tensor weight_tensor(Rig& rig, TensorType type, int64_t columns, int64_t rows, const Bytes& bytes) {
  const Tensor t = rig.make(type, {columns, rows, 1, 1});
  EXPECT_EQ(t.bytes(), bytes.size());
  rig->upload(t, bytes.data());
  return t;
}

inline std::vector<Isa> isas() {
  return available_isas();
}

}  // namespace moetier::testing_compute
