// The AVX-512 intrinsics on any processor with AVX2, by SIMDe, and those of them that SIMDe 0.7.4 lacks, one lane after
// another. For one file that takes in the AVX-512 units' source; include it first.
#pragma once

#include <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace moetier::simde_lanes {

/// A vector's lanes as an array, and back.
template <typename Lane, typename Vector>
auto lanes(const Vector& vector) {
  return std::bit_cast<std::array<Lane, sizeof(Vector) / sizeof(Lane)>>(vector);
}

/// out[i] = function(in[i]).
template <typename ToVector, typename From, typename Vector, typename Function>
ToVector map(const Vector& vector, Function function) {
  const auto in = lanes<From>(vector);
  std::array<decltype(function(in[0])), in.size()> out;
  std::transform(in.begin(), in.end(), out.begin(), function);
  return std::bit_cast<ToVector>(out);
}

inline __m512 cvtepi32_ps(__m512i v) {
  return map<__m512, int32_t>(v, [](int32_t x) { return static_cast<float>(x); });
}
inline __m512i cvtps_epi32(__m512 v) {
  return map<__m512i, float>(v, [](float x) { return static_cast<int32_t>(std::nearbyint(x)); });
}
inline __m512i cvtepu16_epi32(__m256i v) {
  return map<__m512i, uint16_t>(v, [](uint16_t x) { return uint32_t{x}; });
}
inline __m256i cvtepi32_epi16(__m512i v) {
  return map<__m256i, uint32_t>(v, [](uint32_t x) { return static_cast<uint16_t>(x); });
}
inline __m512 cvtph_ps(__m256i v) {
  return map<__m512, uint16_t>(v, [](uint16_t x) { return f16_to_f32(x); });
}
inline __m512i srai_epi32(__m512i v, unsigned count) {
  return map<__m512i, int32_t>(v, [count](int32_t x) { return x >> count; });
}
inline uint32_t reduce_min_epu32(__m512i v) {
  const auto all = lanes<uint32_t>(v);
  return *std::min_element(all.begin(), all.end());
}
inline __m256 upper_half(__m512 v) {
  std::array<float, 8> half;
  std::copy_n(lanes<float>(v).begin() + 8, 8, half.begin());
  return std::bit_cast<__m256>(half);
}
/// The lanes that `mask` names are read, the others are 0.
template <typename Vector, typename Lane>
Vector masked_load(uint64_t mask, const void* from) {
  std::array<Lane, sizeof(Vector) / sizeof(Lane)> out{};
  for (size_t i = 0; i < out.size(); ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(&out[i], static_cast<const char*>(from) + i * sizeof(Lane), sizeof(Lane));
  }
  return std::bit_cast<Vector>(out);
}

inline __m512i cvtepu8_epi32(__m128i v) {
  return map<__m512i, uint8_t>(v, [](uint8_t x) { return uint32_t{x}; });
}
/// Every quarter's dwords as `order`, two bits for each, says.
inline __m512i shuffle_epi32(__m512i v, int order) {
  const auto in = lanes<uint32_t>(v);
  auto out = in;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = in[(i & ~size_t{3}) + static_cast<size_t>(order >> (2 * (i % 4)) & 3)];
  return std::bit_cast<__m512i>(out);
}
/// The elements of `from` at the dwords of `index`.
template <typename Lane, typename Index>
__m512i gather(Index index, const void* from) {
  const auto at = lanes<int32_t>(index);
  std::array<Lane, 64 / sizeof(Lane)> out;
  static_assert(out.size() == at.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<const Lane*>(from)[at[i]];
  return std::bit_cast<__m512i>(out);
}
inline uint16_t testn_epi32(__m512i a, __m512i b) {
  const auto x = lanes<uint32_t>(a), y = lanes<uint32_t>(b);
  unsigned mask = 0;
  for (size_t i = 0; i < x.size(); ++i) mask |= (x[i] & y[i]) == 0 ? 1u << i : 0u;
  return static_cast<uint16_t>(mask);
}
/// Zeros above.
template <typename Vector>
__m512i widened(Vector v) {
  std::array<Vector, 64 / sizeof(Vector)> out{};
  out[0] = v;
  return std::bit_cast<__m512i>(out);
}
template <typename Vector>
void masked_store(float* to, unsigned mask, Vector v) {
  const auto in = lanes<float>(v);
  for (size_t i = 0; i < in.size(); ++i) {
    if ((mask >> i & 1u) != 0) to[i] = in[i];
  }
}

}  // namespace moetier::simde_lanes

#define _mm512_cvtepu8_epi32 moetier::simde_lanes::cvtepu8_epi32
#define _mm512_shuffle_epi32(v, order) moetier::simde_lanes::shuffle_epi32(v, static_cast<int>(order))
#define _mm512_i32gather_epi64(index, from, scale) moetier::simde_lanes::gather<uint64_t>(index, from)
#define _mm512_i32gather_epi32(index, from, scale) moetier::simde_lanes::gather<uint32_t>(index, from)
#define _mm512_shuffle_i64x2(a, b, order) simde_mm512_shuffle_i32x4(a, b, order)
#define _mm512_testn_epi32_mask moetier::simde_lanes::testn_epi32
#define _mm512_zextsi256_si512 moetier::simde_lanes::widened<__m256i>
#define _mm512_zextsi128_si512 moetier::simde_lanes::widened<__m128i>
#define _mm512_maskz_loadu_epi8 moetier::simde_lanes::masked_load<__m512i, uint8_t>
#define _mm256_mask_storeu_ps moetier::simde_lanes::masked_store
#define _mm512_mask_storeu_ps moetier::simde_lanes::masked_store
#define _mm512_cvtepi32_ps moetier::simde_lanes::cvtepi32_ps
#define _mm512_cvtps_epi32 moetier::simde_lanes::cvtps_epi32
#define _mm512_cvtepu16_epi32 moetier::simde_lanes::cvtepu16_epi32
#define _mm512_cvtepi32_epi16 moetier::simde_lanes::cvtepi32_epi16
#define _mm512_cvtph_ps moetier::simde_lanes::cvtph_ps
#define _mm512_srai_epi32 moetier::simde_lanes::srai_epi32
#define _mm512_reduce_min_epu32 moetier::simde_lanes::reduce_min_epu32
#define _mm512_extractf32x8_ps(v, half) moetier::simde_lanes::upper_half(v)
#define _mm512_maskz_loadu_ps moetier::simde_lanes::masked_load<__m512, float>
#define _mm256_maskz_loadu_epi16 moetier::simde_lanes::masked_load<__m256i, uint16_t>
