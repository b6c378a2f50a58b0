#include "compute/cpu/peak.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace moetier {
namespace {

/// The compiler must not see that the rounds are alike.
#define OPAQUE(v) asm volatile("" : "+v"(v))

void int8_avx512(int64_t iterations) {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  __m512i s[12] = {};
  for (int64_t i = 0; i < iterations; ++i) {
    OPAQUE(a);
#pragma GCC unroll 12
    for (__m512i& sum : s) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  for (__m512i& sum : s) OPAQUE(sum);
}

void f32_avx512(int64_t iterations) {
  __m512 a = _mm512_set1_ps(1.0f), b = a;
  __m512 s[8] = {a, a, a, a, a, a, a, a};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 8
    for (__m512& sum : s) {
      OPAQUE(a);
      sum = _mm512_add_ps(sum, _mm512_mul_ps(a, b));
    }
  }
  for (__m512& sum : s) OPAQUE(sum);
}

uint64_t read_avx512(const std::byte* data, size_t bytes) {
  __m512i s[8] = {};
  for (size_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
    for (size_t k = 0; k < 8; ++k) s[k] = _mm512_add_epi64(s[k], _mm512_load_si512(data + i + 64 * k));
  }
  for (size_t k = 1; k < 8; ++k) s[0] = _mm512_add_epi64(s[0], s[k]);
  uint64_t words[8];
  _mm512_storeu_si512(words, s[0]);
  uint64_t sum = 0;
  for (const uint64_t word : words) sum += word;
  return sum;
}

/// What the processor wants to know of its tiles: 8 of 16 rows with 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

const PeakOps& cpu::peak_ops_avx512() {
  static constexpr PeakOps ops{"vpdpbusd zmm", 12 * 64, int8_avx512, 8 * 16, f32_avx512, read_avx512};
  return ops;
}

__attribute__((target("amx-tile,amx-int8"))) bool peak_tiles(int64_t iterations) {
  static const TileConfig config;  // not on the stack: the intrinsic does not say that it reads all of it
  _tile_loadconfig(&config);
  alignas(64) static const std::byte codes[16 * 64] = {};
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, codes, 64);
  _tile_loadd(5, codes, 64);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbusd(0, 4, 5);
    _tile_dpbusd(1, 4, 5);
    _tile_dpbusd(2, 4, 5);
    _tile_dpbusd(3, 4, 5);
  }
  _tile_release();
  return true;
}

}  // namespace moetier

#endif
