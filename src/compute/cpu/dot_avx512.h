// What the AVX-512 dots share. Only for files named *_avx512.cpp.
//
// The scheme is that of dot_avx2.h with sixteen weight rows in a panel: a vector holds 4 neighbouring columns of the
// sixteen rows, as unsigned codes, and one VNNI instruction multiplies it with four activation codes that are
// broadcast from memory. Its int32 sums do not overflow, so nothing is widened on the way. The float sums of sixteen
// rows go on as one vector, each row's in the order that docs/numbers.md gives.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "compute/cpu/ahead.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/math.h"

// Kernels are inlined into one loop per type. Sanitizer builds need not be fast, and would compile for minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOETIER_KERNEL inline
#else
#define MOETIER_KERNEL MOETIER_INLINE
#endif

// Loops over few activation rows are unrolled, so that their sums stay in registers.
#if defined(__clang__)
#define MOETIER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MOETIER_UNROLL _Pragma("GCC unroll 16")
#endif

namespace moetier::avx512 {

using cpu::Ahead;

inline constexpr int kPanel = 16;

/// Sixteen rows of a matrix, at some block.
struct Rows16 {
  const std::byte* quarter[4];  ///< rows 0, 4, 8 and 12
  size_t stride, stride3;

  MOETIER_KERNEL Rows16(const std::byte* data, size_t row_bytes)
      : quarter{data, data + 4 * row_bytes, data + 8 * row_bytes, data + 12 * row_bytes},
        stride(row_bytes),
        stride3(3 * row_bytes) {}
  MOETIER_KERNEL void advance(size_t bytes) {
    for (const std::byte*& rows : quarter) rows += bytes;
  }
  /// Row 4 * q + i, at `offset`.
  MOETIER_KERNEL const std::byte* at(int q, int i, size_t offset) const {
    return quarter[q] + offset + (i == 0 ? 0 : i == 1 ? stride : i == 2 ? 2 * stride : stride3);
  }
};

/// The 16 bytes at `offset` of rows i, 4 + i, 8 + i and 12 + i. (No lambda: compilers leave some of those as calls.)
MOETIER_KERNEL __m512i load_quarters(const Rows16& rows, size_t offset, int i) {
  __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(0, i, offset))));
  all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(1, i, offset))), 1);
  all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(2, i, offset))), 2);
  return _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(3, i, offset))), 3);
}

/// v[j] = dword j of the 16 bytes at `offset`, of all sixteen rows.
MOETIER_KERNEL void load_transposed(const Rows16& rows, size_t offset, __m512i v[4]) {
  const __m512i a = load_quarters(rows, offset, 0), b = load_quarters(rows, offset, 1);
  const __m512i c = load_quarters(rows, offset, 2), d = load_quarters(rows, offset, 3);
  const __m512i ab01 = _mm512_unpacklo_epi32(a, b), ab23 = _mm512_unpackhi_epi32(a, b);
  const __m512i cd01 = _mm512_unpacklo_epi32(c, d), cd23 = _mm512_unpackhi_epi32(c, d);
  v[0] = _mm512_unpacklo_epi64(ab01, cd01);
  v[1] = _mm512_unpackhi_epi64(ab01, cd01);
  v[2] = _mm512_unpacklo_epi64(ab23, cd23);
  v[3] = _mm512_unpackhi_epi64(ab23, cd23);
}

/// The 16-bit words at `offset`, of all sixteen rows.
MOETIER_KERNEL __m256i gather16(const Rows16& rows, size_t offset) {
  const auto word = [&](int q, int i) {
    uint16_t value;
    std::memcpy(&value, rows.at(q, i, offset), sizeof(value));
    return static_cast<int>(value);
  };
  const auto eight = [&](int q) {
    __m128i v = _mm_cvtsi32_si128(word(q, 0));
    v = _mm_insert_epi16(v, word(q, 1), 1);
    v = _mm_insert_epi16(v, word(q, 2), 2);
    v = _mm_insert_epi16(v, word(q, 3), 3);
    v = _mm_insert_epi16(v, word(q + 1, 0), 4);
    v = _mm_insert_epi16(v, word(q + 1, 1), 5);
    v = _mm_insert_epi16(v, word(q + 1, 2), 6);
    return _mm_insert_epi16(v, word(q + 1, 3), 7);
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(eight(0)), eight(2), 1);
}

/// The dwords at `offset`, of all sixteen rows.
MOETIER_KERNEL __m512i gather32(const Rows16& rows, size_t offset) {
  const auto four = [&](int q) {
    const auto dword = [&](int i) {
      int value;
      std::memcpy(&value, rows.at(q, i, offset), sizeof(value));
      return value;
    };
    __m128i v = _mm_cvtsi32_si128(dword(0));
    v = _mm_insert_epi32(v, dword(1), 1);
    v = _mm_insert_epi32(v, dword(2), 2);
    return _mm_insert_epi32(v, dword(3), 3);
  };
  __m512i all = _mm512_castsi128_si512(four(0));
  all = _mm512_inserti32x4(all, four(1), 1);
  all = _mm512_inserti32x4(all, four(2), 2);
  return _mm512_inserti32x4(all, four(3), 3);
}

/// dwords = (high f16 << 16 | low f16): the two floats of each row.
MOETIER_KERNEL void halves_to_floats(__m512i dwords, __m512& low, __m512& high) {
  low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords));
  high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dwords, 16)));
}

/// Four neighbouring codes (or two int16 sums) for all rows.
MOETIER_KERNEL __m512i broadcast4(const void* from) {
  int value;
  std::memcpy(&value, from, sizeof(value));
  return _mm512_set1_epi32(value);
}

/// acc + the dots of unsigned weights (kCount vectors) with the codes from `codes` on.
template <int kCount>
MOETIER_KERNEL __m512i add_dots(__m512i acc, const __m512i* u, const int8_t* codes) {
  for (int j = 0; j < kCount; ++j) acc = _mm512_dpbusd_epi32(acc, u[j], broadcast4(codes + 4 * j));
  return acc;
}

/// +0 where |x| < 2^-100, else x.
MOETIER_KERNEL __m512 flush16(__m512 x) {
  const __mmask16 stays = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(num::kFlush), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(stays, x);
}

/// flush(d * a) * float(sum).
MOETIER_KERNEL __m512 scaled(__m512 d, __m512 a, __m512i sum) {
  return _mm512_mul_ps(flush16(_mm512_mul_ps(d, a)), _mm512_cvtepi32_ps(sum));
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

/// Calls panel(rows, ahead, sums) for panels of sixteen rows and hands out the sums; `narrow` computes what is left
/// with at most eight rows, and single activation rows. Weights are read once, so a panel fetches
/// the next one, at `ahead`, into the cache while it runs.
template <typename Panel>
MOETIER_KERNEL void for_panels(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x,
                               float* const* out, int n, DotFn narrow, Panel panel) {
  // One row of activations waits for the memory, which eight rows of weights at a time keep busier.
  if (w.rows < kPanel || n == 1) return narrow(w, first, last, x, out, n);
  alignas(64) float sums[kDotTile][kPanel];
  for (int64_t r = first; r < last; r += kPanel) {
    if (last - r <= kPanel / 2) {
      float* rest[kDotTile];
      for (int t = 0; t < n; ++t) rest[t] = out[t] + (r - first);
      return narrow(w, r, last, x, rest, n);
    }
    // The last rows of a matrix are taken with some before them.
    const int64_t base = r + kPanel <= w.rows ? r : w.rows - kPanel;
    const std::byte* data = w.data + static_cast<size_t>(base) * w.row_bytes;
    panel(Rows16(data, w.row_bytes), cpu::ahead_of(w, base, kPanel), sums);
    const auto count = static_cast<size_t>((r + kPanel <= last ? r + kPanel : last) - r);
    for (int t = 0; t < n; ++t) {
      if (count == kPanel) {
        _mm512_storeu_ps(out[t] + (r - first), _mm512_load_ps(sums[t]));
      } else {
        std::memcpy(out[t] + (r - first), sums[t] + (r - base), count * sizeof(float));
      }
    }
  }
}

/// The lanes of a panel that begins at row `base` which belong to rows [first, last).
MOETIER_KERNEL __mmask16 lanes_of(int64_t base, int64_t first, int64_t last) {
  const int64_t low = first > base ? first - base : 0, high = last - base < kPanel ? last - base : kPanel;
  return static_cast<__mmask16>((1u << high) - (1u << low));
}

/// Adds a segment's sum to a row's total, in `out`, for the lanes of `mask`.
MOETIER_KERNEL void add_segment(float* out, __mmask16 mask, bool is_first, __m512 segment) {
  const __m512 total = is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, out);
  _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(total, segment));
}

/// x where the bit is clear, -x where it is set.
MOETIER_KERNEL __m512i turned(__m512i x, uint64_t signs) {
  return _mm512_mask_sub_epi8(x, static_cast<__mmask64>(signs), _mm512_setzero_si512(), x);
}
/// Sixteen rows of a grid of 4.
MOETIER_KERNEL __m512i quads(const uint32_t* grid, __m512i index) {
  return _mm512_i32gather_epi32(index, grid, 4);
}

/// Each puts the functions of some types into a table of the unit, from its own file.
void add_k_dots(DotTable& table);
void add_low_bit_dots(DotTable& table);
void add_nvfp4_dots(DotTable& table);
void add_float_dots(DotTable& table);

/// The functions of the types below four bits for several activation rows; no others are there (dot_planes_avx512.cpp).
const DotTable& planes_dots();

}  // namespace moetier::avx512
