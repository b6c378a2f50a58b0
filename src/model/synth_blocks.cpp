#include "model/synth_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/grids.h"
#include "quant/half.h"
#include "quant/low_bit_blocks.h"

namespace moetier {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

/// Root mean square of lowest, lowest + 1, ... highest.
double rms_of_range(int lowest, int highest) {
  double sum = 0;
  for (int q = lowest; q <= highest; ++q) sum += static_cast<double>(q) * q;
  return std::sqrt(sum / (highest - lowest + 1));
}

double rms_of(std::span<const int8_t> values) {
  double sum = 0;
  for (const int8_t v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// Sixteen block scales around `scale`: eight magnitudes from 0.65 to 1.35 of it, each with both signs. The sign
/// matters: codes such as q - 8 have a mean of -0.5, and under scales of one sign every output would share a part that
/// grows from layer to layer.
class Scales {
 public:
  explicit Scales(double scale) {
    double square = 0;
    for (int i = 0; i < 8; ++i) square += factor(i) * factor(i) / 8;
    for (int i = 0; i < 16; ++i) {
      const double value = scale * factor(i % 8) / std::sqrt(square);
      values_[i] = static_cast<float>(i < 8 ? value : -value);
    }
  }
  /// By four random bits.
  float value(uint64_t bits) const { return values_[bits & 15]; }
  uint16_t f16(uint64_t bits) const { return f32_to_f16(value(bits)); }

 private:
  static double factor(int i) { return 0.65 + 0.1 * i; }
  std::array<float, 16> values_{};
};

/// Fills whole blocks: first random bytes, then `fix(block, random)` for each.
template <typename Block, typename Fix>
std::function<void(const GgufWriter::Sink&)> blocks(int64_t count, uint64_t seed, Fix fix) {
  return [=](const GgufWriter::Sink& sink) {
    WeightRandom random(seed);
    std::vector<Block> piece(
        std::min<size_t>(static_cast<size_t>(count), std::max<size_t>(1, kPieceBytes / sizeof(Block))));
    for (auto left = static_cast<size_t>(count); left > 0;) {
      const size_t n = std::min(left, piece.size());
      random.fill(piece.data(), n * sizeof(Block));
      for (size_t i = 0; i < n; ++i) fix(piece[i], random);
      sink(piece.data(), n * sizeof(Block));
      left -= n;
    }
  };
}

/// A type with one f16 scale d.
template <typename Block>
auto scaled(int64_t elements, uint64_t seed, double scale) {
  return blocks<Block>(elements / 32, seed,
                       [scales = Scales(scale)](Block& b, WeightRandom& random) { b.d = scales.f16(random.next()); });
}

/// A type with y = q*d + m: m is the middle of the codes, negated.
template <typename Block>
auto scaled_with_minimum(int64_t elements, uint64_t seed, double scale, float middle) {
  return blocks<Block>(elements / 32, seed, [scales = Scales(scale), middle](Block& b, WeightRandom& random) {
    const float d = scales.value(random.next());
    b.d = f32_to_f16(d);
    b.m = f32_to_f16(-middle * d);
  });
}

/// Q4_K and Q5_K: scales of 32 to 63, minima beside them, so that each sub-block is around zero for dmin = middle * d.
template <typename Block>
auto super_blocks(int64_t elements, uint64_t seed, double deviation, int codes) {
  const double middle = (codes - 1) / 2.0;
  const double code_rms = std::sqrt((static_cast<double>(codes) * codes - 1) / 12);
  const Scales scales(deviation / (rms_of_range(32, 63) * code_rms));
  return blocks<Block>(
      elements / 256, seed, [scales, middle = static_cast<float>(middle)](Block& b, WeightRandom& random) {
        uint64_t bits = random.next();
        const float d = scales.value(bits);
        b.d = f32_to_f16(d);
        b.dmin = f32_to_f16(middle * d);
        bits >>= 4;
        uint64_t wobble = random.next();
        ScalesMins sm;
        for (int k = 0; k < 8; ++k) {
          sm.scales[k] = static_cast<uint8_t>(32 + (bits & 31));
          sm.mins[k] = static_cast<uint8_t>(
              std::clamp(sm.scales[k] + static_cast<int>(wobble & 3) - static_cast<int>(wobble >> 2 & 3), 0, 63));
          bits >>= 5;
          wobble >>= 4;
        }
        pack_scales_mins(sm, b.scales);
      });
}

auto q6_blocks(int64_t elements, uint64_t seed, double deviation) {
  const Scales scales(deviation / (rms_of_range(32, 95) * rms_of_range(-32, 31)));
  return blocks<BlockQ6_K>(elements / 256, seed, [scales](BlockQ6_K& b, WeightRandom& random) {
    b.d = scales.f16(random.next());
    for (int8_t& scale : b.scales) {
      const int size = 32 + (scale & 63);
      scale = static_cast<int8_t>(scale < 0 ? -size : size);
    }
  });
}

/// Exponents of two neighbouring powers of two, mixed so that the mean square is right.
auto mxfp4_blocks(int64_t elements, uint64_t seed, double deviation) {
  const double wanted = deviation / rms_of(kFp4Values);
  const double exponent = std::floor(std::log2(wanted));
  const double square = wanted * wanted, low = std::exp2(2 * exponent);  // low <= square < 4 low
  const double share_high = (square - low) / (3 * low);
  const auto limit = static_cast<uint64_t>(share_high * 0x1p32);
  const auto e = static_cast<uint8_t>(std::clamp(exponent + 128, 0.0, 253.0));
  return blocks<BlockMXFP4>(elements / 32, seed, [e, limit](BlockMXFP4& b, WeightRandom& random) {
    b.e = static_cast<uint8_t>(e + ((random.next() >> 32) < limit ? 1 : 0));
  });
}

/// Q2_K: scales of 8 to 15, minima about as large, so that each sub-block is around zero for dmin = 1.5 d.
auto q2_blocks(int64_t elements, uint64_t seed, double deviation) {
  const Scales scales(deviation / (rms_of_range(8, 15) * std::sqrt(15.0 / 12)));
  return blocks<BlockQ2_K>(elements / 256, seed, [scales](BlockQ2_K& b, WeightRandom& random) {
    const float d = scales.value(random.next());
    b.d = f32_to_f16(d);
    b.dmin = f32_to_f16(1.5f * d);
    for (uint8_t& byte : b.scales) {
      const int scale = 8 + (byte & 7), wobble = (byte >> 4 & 1) - (byte >> 5 & 1);
      byte = static_cast<uint8_t>(scale | std::min(scale + wobble, 15) << 4);
    }
  });
}

/// Types of 256 weights whose codes and scales may be any: `unit` is the deviation under d = 1.
template <typename Block>
auto free_blocks(int64_t elements, uint64_t seed, double deviation, double unit) {
  return blocks<Block>(elements / 256, seed, [scales = Scales(deviation / unit)](Block& b, WeightRandom& random) {
    b.d = scales.f16(random.next());
  });
}

/// The root mean square of a grid's elements.
template <typename Row, size_t kRows>
double rms_of_grid(const Row (&grid)[kRows]) {
  double sum = 0;
  for (const Row row : grid) {
    for (size_t j = 0; j < sizeof(Row); ++j) {
      const auto magnitude = static_cast<double>(row >> (8 * j) & 0xff);
      sum += magnitude * magnitude;
    }
  }
  return std::sqrt(sum / static_cast<double>(kRows * sizeof(Row)));
}

/// Of the odd numbers 1, 3, ... 2n - 1.
double rms_of_odd(int n) {
  return std::sqrt((4.0 * n * n - 1) / 3);
}

/// Of IQ1's elements (-1, 0, 1) with shifts of 1/8, both ways equally often.
double iq1_unit() {
  double sum = 0;
  for (const uint64_t row : grids().iq1) {
    for (int j = 0; j < 8; ++j) sum += (row >> (8 * j) & 0xff) == 8 ? 0 : 1;
  }
  return rms_of_odd(8) * std::sqrt(sum / (2048 * 8) + 1.0 / 64);
}

auto iq1_m_blocks(int64_t elements, uint64_t seed, double deviation) {
  return blocks<BlockIQ1_M>(elements / 256, seed,
                            [scales = Scales(deviation / iq1_unit())](BlockIQ1_M& b, WeightRandom& random) {
                              const uint32_t d = scales.f16(random.next());
                              for (int r = 0; r < 4; ++r) {
                                const uint32_t nibble = d >> (4 * r) & 15;
                                b.scales[r] = static_cast<uint16_t>((b.scales[r] & 0x0fff) | nibble << 12);
                              }
                            });
}

/// Codes 0, 1, 2 as 1, 2, 1 of 4: where both bits are set the upper is cleared.
auto tq2_blocks(int64_t elements, uint64_t seed, double deviation) {
  return blocks<BlockTQ2_0>(elements / 256, seed,
                            [scales = Scales(deviation / std::sqrt(0.5))](BlockTQ2_0& b, WeightRandom& random) {
                              b.d = scales.f16(random.next());
                              for (uint8_t& byte : b.qs) byte = static_cast<uint8_t>(byte & ~((byte & 0x55) << 1));
                            });
}

/// The digits of all bytes, less one.
double tq1_unit() {
  double sum = 0;
  for (int byte = 0; byte < 256; ++byte) {
    for (int n = 0; n < 5; ++n) sum += trit(static_cast<uint8_t>(byte), n) == 1 ? 0 : 1;
  }
  return std::sqrt(sum / (256 * 5));
}

/// Scales that are neighbours in E4M3, mixed so that the mean square is right.
auto nvfp4_blocks(int64_t elements, uint64_t seed, double deviation) {
  const double wanted = std::min<double>(deviation / rms_of(kFp4Values), ue4m3_half(0x7e));
  uint8_t code = 0;
  while (code < 0x7d && ue4m3_half(static_cast<uint8_t>(code + 1)) <= wanted) ++code;
  const double low = ue4m3_half(code), high = ue4m3_half(static_cast<uint8_t>(code + 1));
  const auto limit = static_cast<uint64_t>((wanted * wanted - low * low) / (high * high - low * low) * 0x1p16);
  return blocks<BlockNVFP4>(elements / 64, seed, [code, limit](BlockNVFP4& b, WeightRandom& random) {
    uint64_t bits = random.next();
    for (uint8_t& scale : b.scales) {
      scale = static_cast<uint8_t>(code + ((bits & 0xffff) < limit ? 1 : 0));
      bits >>= 16;
    }
  });
}

/// Plain types: uniform numbers of 16 bits, spread by `convert`.
template <typename T, typename Convert>
auto plain(int64_t elements, uint64_t seed, Convert convert) {
  struct Weight {
    T value;
  };
  return blocks<Weight>(elements, seed, [convert](Weight& w, WeightRandom&) {
    int16_t bits;
    std::memcpy(&bits, &w, sizeof bits);
    w.value = convert(static_cast<float>(bits) + 0.5f);
  });
}

}  // namespace

double WeightRandom::normal() {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum / 2;  // each uniform number has variance 1/3
}

void WeightRandom::fill(void* out, size_t bytes) {
  auto* at = static_cast<std::byte*>(out);
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    const uint64_t word = next();
    std::memcpy(at, &word, sizeof word);
  }
  const uint64_t word = next();
  std::memcpy(at, &word, bytes);
}

uint64_t tensor_seed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  uint64_t state = hash ^ splitmix64(seed);
  return splitmix64(state);
}

std::function<void(const GgufWriter::Sink&)> random_weights(TensorType type, int64_t elements, double deviation,
                                                            uint64_t seed, double mean) {
  const auto spread =
      static_cast<float>(deviation * std::sqrt(3.0) / 32768);  // uniform in +-32768 to the deviation wanted
  const auto middle = static_cast<float>(mean);
  const double nibble = rms_of_range(-8, 7), five_bits = rms_of_range(-16, 15);
  switch (type) {
    case TensorType::f32:
      return plain<float>(elements, seed, [=](float x) { return x * spread + middle; });
    case TensorType::f16:
      return plain<uint16_t>(elements, seed, [=](float x) { return f32_to_f16(x * spread); });
    case TensorType::bf16:
      return plain<uint16_t>(elements, seed, [=](float x) { return f32_to_bf16(x * spread); });
    case TensorType::q4_0:
      return scaled<BlockQ4_0>(elements, seed, deviation / nibble);
    case TensorType::q4_1:
      return scaled_with_minimum<BlockQ4_1>(elements, seed, deviation / std::sqrt(255.0 / 12), 7.5f);
    case TensorType::q5_0:
      return scaled<BlockQ5_0>(elements, seed, deviation / five_bits);
    case TensorType::q5_1:
      return scaled_with_minimum<BlockQ5_1>(elements, seed, deviation / std::sqrt(1023.0 / 12), 15.5f);
    case TensorType::q8_0:
      return scaled<BlockQ8_0>(elements, seed, deviation / rms_of_range(-128, 127));
    case TensorType::iq4_nl:
      return scaled<BlockIQ4_NL>(elements, seed, deviation / rms_of(kIq4Values));
    case TensorType::mxfp4:
      return mxfp4_blocks(elements, seed, deviation);
    case TensorType::q4_k:
      return super_blocks<BlockQ4_K>(elements, seed, deviation, 16);
    case TensorType::q5_k:
      return super_blocks<BlockQ5_K>(elements, seed, deviation, 32);
    case TensorType::q6_k:
      return q6_blocks(elements, seed, deviation);
    case TensorType::q2_k:
      return q2_blocks(elements, seed, deviation);
    case TensorType::q3_k:
      return free_blocks<BlockQ3_K>(elements, seed, deviation, rms_of_range(-32, 31) * rms_of_range(-4, 3));
    case TensorType::iq4_xs:
      return free_blocks<BlockIQ4_XS>(elements, seed, deviation, rms_of_range(-32, 31) * rms_of(kIq4Values));
    case TensorType::iq2_xxs:
      return free_blocks<BlockIQ2_XXS>(elements, seed, deviation, rms_of_odd(16) / 8 * rms_of_grid(grids().iq2_xxs));
    case TensorType::iq2_xs:
      return free_blocks<BlockIQ2_XS>(elements, seed, deviation, rms_of_odd(16) / 8 * rms_of_grid(grids().iq2_xs));
    case TensorType::iq2_s:
      return free_blocks<BlockIQ2_S>(elements, seed, deviation, rms_of_odd(16) / 8 * rms_of_grid(grids().iq2_s));
    case TensorType::iq3_xxs:
      return free_blocks<BlockIQ3_XXS>(elements, seed, deviation, rms_of_odd(16) / 4 * rms_of_grid(grids().iq3_xxs));
    case TensorType::iq3_s:
      return free_blocks<BlockIQ3_S>(elements, seed, deviation, rms_of_odd(16) * rms_of_grid(grids().iq3_s));
    case TensorType::iq1_s:
      return free_blocks<BlockIQ1_S>(elements, seed, deviation, iq1_unit());
    case TensorType::iq1_m:
      return iq1_m_blocks(elements, seed, deviation);
    case TensorType::tq1_0:
      return free_blocks<BlockTQ1_0>(elements, seed, deviation, tq1_unit());
    case TensorType::tq2_0:
      return tq2_blocks(elements, seed, deviation);
    case TensorType::nvfp4:
      return nvfp4_blocks(elements, seed, deviation);
    default:
      fail("random weights of type {} cannot be made", type_name(type));
  }
}

}  // namespace moetier
