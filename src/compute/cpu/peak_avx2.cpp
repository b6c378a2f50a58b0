#include "compute/cpu/peak.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace moetier {
namespace {

/// The compiler must not see that the rounds are alike.
#define OPAQUE(v) asm volatile("" : "+x"(v))

/// What sums of products of codes cost without VNNI: products in pairs, pairs of pairs, the addition.
void int8_avx2(int64_t iterations) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  __m256i s[4] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 4
    for (__m256i& sum : s) {
      OPAQUE(a);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  for (__m256i& sum : s) OPAQUE(sum);
}

__attribute__((target("avxvnni"))) void int8_vnni(int64_t iterations) {
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  __m256i s[10] = {};
  for (int64_t i = 0; i < iterations; ++i) {
    OPAQUE(a);
#pragma GCC unroll 10
    for (__m256i& sum : s) sum = _mm256_dpbusd_avx_epi32(sum, a, b);
  }
  for (__m256i& sum : s) OPAQUE(sum);
}

void f32_avx2(int64_t iterations) {
  __m256 a = _mm256_set1_ps(1.0f), b = a;
  __m256 s[8] = {a, a, a, a, a, a, a, a};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 8
    for (__m256& sum : s) {
      OPAQUE(a);
      sum = _mm256_add_ps(sum, _mm256_mul_ps(a, b));
    }
  }
  for (__m256& sum : s) OPAQUE(sum);
}

uint64_t read_avx2(const std::byte* data, size_t bytes) {
  __m256i s[8] = {};
  for (size_t i = 0; i < bytes; i += 256) {
#pragma GCC unroll 8
    for (size_t k = 0; k < 8; ++k) {
      s[k] = _mm256_add_epi64(s[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
    }
  }
  for (size_t k = 1; k < 8; ++k) s[0] = _mm256_add_epi64(s[0], s[k]);
  return static_cast<uint64_t>(_mm256_extract_epi64(s[0], 0) + _mm256_extract_epi64(s[0], 1) +
                               _mm256_extract_epi64(s[0], 2) + _mm256_extract_epi64(s[0], 3));
}

}  // namespace

const PeakOps& cpu::peak_ops_avx2() {
  static constexpr PeakOps ops{"vpmaddubsw, vpmaddwd, vpaddd ymm", 4 * 32, int8_avx2, 8 * 8, f32_avx2, read_avx2};
  return ops;
}

const PeakOps& cpu::peak_ops_avx2_vnni() {
  static constexpr PeakOps ops{"vpdpbusd ymm", 10 * 32, int8_vnni, 8 * 8, f32_avx2, read_avx2};
  return ops;
}

}  // namespace moetier

#endif
