// What the AVX2 dots share. Only for files named *_avx2.cpp.
//
// The scheme: eight weight rows (a panel) are taken together. Of each, 16 bytes are loaded and transposed in dwords, so
// that a vector holds 4 neighbouring columns of the eight rows, rows 0-3 in its low half. Four activation codes,
// broadcast, multiply all eight rows at once; the eight int32 sums need no horizontal addition, and the float sums of
// eight rows go on as one vector, each row's in the order that docs/numbers.md gives. A decoded vector serves all
// activation rows of the tile.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "compute/cpu/ahead.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/math_avx2.h"

// Kernels are inlined into one loop per type. Sanitizer builds need not be fast, and would compile for minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOETIER_KERNEL inline
#else
#define MOETIER_KERNEL MOETIER_INLINE
#endif

// The kernels are compiled three times: as they are, with AVX-VNNI, and with the same instructions as AVX-512
// processors without AVX-VNNI know them. VNNI's dots need no widening. Each copy has its own namespace, so that none
// can end up with another's functions.
#if defined(__AVX512VNNI__)
#define MOETIER_AVX2_UNIT avx512vl
#define MOETIER_VNNI
#elif defined(__AVXVNNI__)
#define MOETIER_AVX2_UNIT avxvnni
#define MOETIER_VNNI
#else
#define MOETIER_AVX2_UNIT avx2
#endif

namespace moetier::MOETIER_AVX2_UNIT {

using cpu::Ahead;

/// Eight rows of a matrix, at some block.
struct Rows8 {
  const std::byte* row0;
  const std::byte* row4;
  size_t stride, stride3;

  MOETIER_KERNEL Rows8(const std::byte* data, size_t row_bytes)
      : row0(data), row4(data + 4 * row_bytes), stride(row_bytes), stride3(3 * row_bytes) {}
  MOETIER_KERNEL void advance(size_t bytes) { row0 += bytes, row4 += bytes; }
  /// Rows 0-3 (or 4-7, of row4), at `offset`.
  MOETIER_KERNEL const std::byte* at(const std::byte* base, int i, size_t offset) const {
    return base + offset + (i == 0 ? 0 : i == 1 ? stride : i == 2 ? 2 * stride : stride3);
  }
};

/// The 16 bytes at `offset` of rows i and 4 + i.
MOETIER_KERNEL __m256i load_pair(const Rows8& rows, int i, size_t offset) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(rows.row0, i, offset)));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(rows.row4, i, offset)));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/// v[j] = dword j of the 16 bytes at `offset`, of all eight rows.
MOETIER_KERNEL void load_transposed(const Rows8& rows, size_t offset, __m256i v[4]) {
  const __m256i a = load_pair(rows, 0, offset), b = load_pair(rows, 1, offset);
  const __m256i c = load_pair(rows, 2, offset), d = load_pair(rows, 3, offset);
  const __m256i ab01 = _mm256_unpacklo_epi32(a, b), ab23 = _mm256_unpackhi_epi32(a, b);
  const __m256i cd01 = _mm256_unpacklo_epi32(c, d), cd23 = _mm256_unpackhi_epi32(c, d);
  v[0] = _mm256_unpacklo_epi64(ab01, cd01);
  v[1] = _mm256_unpackhi_epi64(ab01, cd01);
  v[2] = _mm256_unpacklo_epi64(ab23, cd23);
  v[3] = _mm256_unpackhi_epi64(ab23, cd23);
}

/// The 16-bit words at `offset`, of all eight rows.
MOETIER_KERNEL __m128i gather16(const Rows8& rows, size_t offset) {
  const auto word = [&](const std::byte* base, int i) {
    uint16_t value;
    std::memcpy(&value, rows.at(base, i, offset), sizeof(value));
    return static_cast<int>(value);
  };
  __m128i v = _mm_cvtsi32_si128(word(rows.row0, 0));
  v = _mm_insert_epi16(v, word(rows.row0, 1), 1);
  v = _mm_insert_epi16(v, word(rows.row0, 2), 2);
  v = _mm_insert_epi16(v, word(rows.row0, 3), 3);
  v = _mm_insert_epi16(v, word(rows.row4, 0), 4);
  v = _mm_insert_epi16(v, word(rows.row4, 1), 5);
  v = _mm_insert_epi16(v, word(rows.row4, 2), 6);
  return _mm_insert_epi16(v, word(rows.row4, 3), 7);
}

/// The bytes at `offset`, of all eight rows.
MOETIER_KERNEL __m128i gather8(const Rows8& rows, size_t offset) {
  const auto byte = [&](const std::byte* base, int i) { return static_cast<uint64_t>(*rows.at(base, i, offset)); };
  const uint64_t a = byte(rows.row0, 0) | byte(rows.row0, 1) << 8 | byte(rows.row0, 2) << 16 | byte(rows.row0, 3) << 24;
  const uint64_t b = byte(rows.row4, 0) | byte(rows.row4, 1) << 8 | byte(rows.row4, 2) << 16 | byte(rows.row4, 3) << 24;
  return _mm_cvtsi64_si128(static_cast<int64_t>(a | b << 32));
}

/// The dwords at `offset`, of all eight rows.
MOETIER_KERNEL __m256i gather32(const Rows8& rows, size_t offset) {
  const auto four = [&](const std::byte* base) {
    const auto dword = [&](int i) {
      int value;
      std::memcpy(&value, rows.at(base, i, offset), sizeof(value));
      return value;
    };
    __m128i v = _mm_cvtsi32_si128(dword(0));
    v = _mm_insert_epi32(v, dword(1), 1);
    v = _mm_insert_epi32(v, dword(2), 2);
    return _mm_insert_epi32(v, dword(3), 3);
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(four(rows.row0)), four(rows.row4), 1);
}

/// dwords = (high f16 << 16 | low f16): the two floats of each row.
MOETIER_KERNEL void halves_to_floats(__m256i dwords, __m256& low, __m256& high) {
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(dwords, _mm256_set1_epi32(0xffff)),
                                             _mm256_srli_epi32(dwords, 16));  // low 0-3, high 0-3 | low 4-7, high 4-7
  const __m256i sorted = _mm256_permute4x64_epi64(packed, 0xd8);
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
}

/// Four neighbouring codes (or two int16 sums) for all rows.
MOETIER_KERNEL __m256i broadcast4(const void* from) {
  int value;
  std::memcpy(&value, from, sizeof(value));
  return _mm256_set1_epi32(value);
}

/// Sixteen bytes in both halves.
MOETIER_KERNEL __m256i broadcast16(const void* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

/// Block b of a row of activations.
MOETIER_KERNEL const Codes256& block_of(const std::byte* x, int64_t b) {
  return reinterpret_cast<const Codes256*>(x)[b];
}

/// Pair sums (int16) of unsigned weights and codes, of 4 * kCount columns. kCount times the largest pair sum must fit
/// in int16.
template <int kCount>
MOETIER_KERNEL __m256i pair_sums(const __m256i* u, const int8_t* codes) {
  if constexpr (kCount == 1) {
    return _mm256_maddubs_epi16(u[0], broadcast4(codes));
  } else {
    constexpr int kHalf = kCount / 2;
    return _mm256_add_epi16(pair_sums<kHalf>(u, codes), pair_sums<kCount - kHalf>(u + kHalf, codes + 4 * kHalf));
  }
}

/// Sums of each row's int16 pairs times `weights` (ones or scales).
MOETIER_KERNEL __m256i widen_sums(__m256i pairs, __m256i weights) {
  return _mm256_madd_epi16(pairs, weights);
}

#if defined(MOETIER_VNNI)
#if defined(__AVXVNNI__)
/// acc + the sum of four neighbours' products, unsigned times signed.
MOETIER_KERNEL __m256i dot4(__m256i acc, __m256i u, __m256i s) {
  return _mm256_dpbusd_avx_epi32(acc, u, s);
}
/// acc + the sum of two neighbouring words' products.
MOETIER_KERNEL __m256i dot2(__m256i acc, __m256i a, __m256i b) {
  return _mm256_dpwssd_avx_epi32(acc, a, b);
}
#else
MOETIER_KERNEL __m256i dot4(__m256i acc, __m256i u, __m256i s) {
  return _mm256_dpbusd_epi32(acc, u, s);
}
MOETIER_KERNEL __m256i dot2(__m256i acc, __m256i a, __m256i b) {
  return _mm256_dpwssd_epi32(acc, a, b);
}
#endif

/// acc + the dots of unsigned weights (kCount vectors) with the codes from `codes` on.
template <int kCount>
MOETIER_KERNEL __m256i add_dots(__m256i acc, const __m256i* u, const int8_t* codes) {
  for (int j = 0; j < kCount; ++j) acc = dot4(acc, u[j], broadcast4(codes + 4 * j));
  return acc;
}
#else
MOETIER_KERNEL __m256i dot2(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
#endif

/// Dwords with sums of eight products: of four bytes of `low` and `x_low` and four of `high` and `x_high`. Without VNNI
/// four products must fit in a word.
MOETIER_KERNEL __m256i sums_of_eight(__m256i low, __m256i high, __m256i x_low, __m256i x_high) {
#if defined(MOETIER_VNNI)
  return dot4(dot4(_mm256_setzero_si256(), low, x_low), high, x_high);
#else
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, x_low), _mm256_maddubs_epi16(high, x_high));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

/// kFp4Values + 12, which is never negative.
MOETIER_KERNEL __m256i fp4_plus_12(__m256i nibbles) {
  const __m256i values = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,  //
                                          12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm256_shuffle_epi8(values, nibbles);
}

/// flush(d * a) * float(sum). Where needs_flush() says no, the flush can be left out.
template <bool kFlush = true>
MOETIER_KERNEL __m256 scaled(__m256 d, __m256 a, __m256i sum) {
  const __m256 product = _mm256_mul_ps(d, a);
  return _mm256_mul_ps(kFlush ? num::flush8(product) : product, _mm256_cvtepi32_ps(sum));
}

/// True if a product of a half float (0 or at least 2^-24) and an activation scale may be below 2^-100, but not zero.
/// If not, a flush changes nothing but the sign of a zero, which no sum can show (none is ever -0). Finding out pays
/// with many weight rows; with few the answer is true.
template <typename Codes>
MOETIER_KERNEL bool needs_flush(const std::byte* const* x, int n, int64_t blocks, int64_t rows) {
  if (rows < 32) return true;
  // As an integer, with 1 taken off, so that zero is the largest of all.
  uint32_t smallest = 0xffffffffu;
  for (int t = 0; t < n; ++t) {
    const Codes* codes = reinterpret_cast<const Codes*>(x[t]);
    for (int64_t b = 0; b < blocks; ++b) {
      const uint32_t bits = (std::bit_cast<uint32_t>(codes[b].scale) & 0x7fffffffu) - 1;
      if (bits < smallest) smallest = bits;
    }
  }
  return smallest < std::bit_cast<uint32_t>(0x1p-76f) - 1;
}

/// Calls panel(rows, ahead, sums) for panels of eight rows and hands out the sums. Weights are read once, so
/// a panel fetches the next one, at `ahead`, into the cache while it runs.
template <typename Panel>
MOETIER_KERNEL void for_panels(const WeightMatrix& w, int64_t first, int64_t last, float* const* out, int n,
                               Panel panel) {
  alignas(32) float sums[kDotTile][8];
  for (int64_t r = first; r < last; r += 8) {
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + 8 <= w.rows ? r : w.rows - 8;
    const std::byte* data = w.data + static_cast<size_t>(base) * w.row_bytes;
    panel(Rows8(data, w.row_bytes), cpu::ahead_of(w, base, 8), sums);
    const auto count = static_cast<size_t>((r + 8 <= last ? r + 8 : last) - r);
    for (int t = 0; t < n; ++t) {
      if (count == 8) {
        _mm256_storeu_ps(out[t] + (r - first), _mm256_load_ps(sums[t]));
      } else {
        std::memcpy(out[t] + (r - first), sums[t] + (r - base), count * sizeof(float));
      }
    }
  }
}

/// Fetches the cache lines of `bytes` that come next into the first level, and as many further on into the second.
MOETIER_KERNEL void prefetch(Ahead ahead, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead.further + i), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(ahead.next + i), _MM_HINT_T0);
  }
}

/// Part kPart of kParts of prefetch(ahead, kBytes). Long blocks call it between pieces of their work: requests that
/// come all at once fill the buffers, and then those buffers are idle.
template <int kPart, int kParts, size_t kBytes>
MOETIER_KERNEL void prefetch_part(Ahead ahead) {
  constexpr size_t kLines = (kBytes + 63) / 64;
  constexpr size_t kFirst = kPart * kLines / kParts, kLast = (kPart + 1) * kLines / kParts;
  ahead += 64 * kFirst;
  prefetch(ahead, 64 * (kLast - kFirst));
}

/// Each puts the functions of some types into a table of the unit, from its own file.
void add_k_dots(DotTable& table);
void add_low_bit_dots(DotTable& table);
void add_nvfp4_dots(DotTable& table);
void add_float_dots(DotTable& table);

}  // namespace moetier::MOETIER_AVX2_UNIT
