// AVX2 dots of the types with 32 weights in a block. Only for files named *_avx2.cpp and *_avxvnni.cpp, which each have
// their own copy.
#pragma once

#include <type_traits>

#include "compute/cpu/dot_avx2.h"
#include "quant/blocks.h"

namespace moetier::MOETIER_AVX2_UNIT {
namespace {

constexpr int kBlocksPerSegment = 16;

// --- how a type's block becomes eight vectors of unsigned codes (vector j: columns 4j to 4j + 3 of the eight rows) ---

/// Low nibbles are columns 0-15, high ones 16-31.
MOETIER_KERNEL void load_nibbles(const Rows8& rows, size_t offset, __m256i u[8]) {
  const __m256i mask = _mm256_set1_epi8(15);
  load_transposed(rows, offset, u);
  for (int j = 0; j < 4; ++j) {
    u[j + 4] = _mm256_and_si256(_mm256_srli_epi16(u[j], 4), mask);
    u[j] = _mm256_and_si256(u[j], mask);
  }
}

/// Adds the fifth bits: bit j of a row's dword belongs to column j.
MOETIER_KERNEL void add_fifth_bits(__m256i qh, __m256i u[8]) {
  const __m256i sixteen = _mm256_set1_epi8(16);
  const __m256i bits[2] = {_mm256_set1_epi32(0x08040201), _mm256_set1_epi32(static_cast<int>(0x80402010u))};
  __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,  //
                                  0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  for (int j = 0; j < 8; j += 2) {
    const __m256i spread = _mm256_shuffle_epi8(qh, byte);
    byte = _mm256_add_epi8(byte, _mm256_set1_epi8(1));
    for (int i = 0; i < 2; ++i) {
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits[i]), bits[i]);
      u[j + i] = _mm256_or_si256(u[j + i], _mm256_and_si256(set, sixteen));
    }
  }
}

/// The scales of types that have one f16 at the start of the block.
MOETIER_KERNEL __m256 load_scales(const Rows8& rows) {
  return _mm256_cvtph_ps(gather16(rows, 0));
}

// Unsigned types: kSums pair sums fit in int16; the integer sum is sum u*c - kOffset * sum c.

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr int kSums = 8, kOffset = 8;
  MOETIER_KERNEL static __m256i values(__m256i nibbles) { return nibbles; }
  MOETIER_KERNEL static __m256 scales(const Rows8& rows) { return load_scales(rows); }
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i u[8]) {
    load_nibbles(rows, offsetof(Block, qs), u);
    return load_scales(rows);
  }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr int kSums = 4, kOffset = 16;
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i u[8]) {
    load_nibbles(rows, offsetof(Block, qs), u);
    add_fifth_bits(gather32(rows, offsetof(Block, qh)), u);
    return load_scales(rows);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr int kSums = 4, kOffset = 12;
  MOETIER_KERNEL static __m256i values(__m256i nibbles) { return fp4_plus_12(nibbles); }
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i u[8]) {
    load_nibbles(rows, offsetof(Block, qs), u);
    for (int j = 0; j < 8; ++j) u[j] = values(u[j]);
    return scales(rows);
  }
  MOETIER_KERNEL static __m256 scales(const Rows8& rows) {
    // 2^(e - 128) is the float with the exponent field e - 27, times 2^26; below 2^-100 (e < 28) it is flushed.
    const __m128i e = _mm_subs_epu8(gather8(rows, offsetof(Block, e)), _mm_set1_epi8(27));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23);
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p26f));
  }
};

// With a minimum: the integer sum is sum u*c, and m goes with sum c.

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr int kSums = 8;
  MOETIER_KERNEL static __m256i values(__m256i nibbles) { return nibbles; }
  MOETIER_KERNEL static __m256 scales(const Rows8& rows, __m256& m) {
    __m256 d;
    halves_to_floats(gather32(rows, 0), d, m);
    return d;
  }
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i u[8], __m256& m) {
    load_nibbles(rows, offsetof(Block, qs), u);
    return scales(rows, m);
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr int kSums = 4;
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i u[8], __m256& m) {
    load_nibbles(rows, offsetof(Block, qs), u);
    add_fifth_bits(gather32(rows, offsetof(Block, qh)), u);
    __m256 d;
    halves_to_floats(gather32(rows, 0), d, m);
    return d;
  }
};

// Signed types: codes of magnitude up to 128. |w| * (c with the sign of w) is exact: 2 * 128 * 127 fits in int16.

struct Q8_0 {
  using Block = BlockQ8_0;
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i s[8]) {
    load_transposed(rows, offsetof(Block, qs), s);
    load_transposed(rows, offsetof(Block, qs) + 16, s + 4);
    return load_scales(rows);
  }
};

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  MOETIER_KERNEL static __m256 load(const Rows8& rows, __m256i s[8]) {
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values.data())));
    load_nibbles(rows, offsetof(Block, qs), s);
    for (int j = 0; j < 8; ++j) s[j] = _mm256_shuffle_epi8(values, s[j]);
    return load_scales(rows);
  }
};

/// v * kFactor by shifts (a multiplication of dwords takes longer).
template <int kFactor>
MOETIER_KERNEL __m256i times(__m256i v) {
  if constexpr (kFactor == 12) return _mm256_add_epi32(_mm256_slli_epi32(v, 3), _mm256_slli_epi32(v, 2));
  return _mm256_slli_epi32(v, kFactor == 8 ? 3 : 4);
}

template <typename T>
constexpr bool kIsSigned = !requires {
  T::kSums;
};
template <typename T>
constexpr bool kHasOffset = requires {
  T::kOffset;
};

/// A decoded block of eight rows.
template <typename T>
struct BlockOf8 {
  __m256i u[8];  ///< unsigned codes, or magnitudes (with VNNI: signed codes plus 128)
  __m256i s[8];  ///< signed codes
  __m256 d, m;

  MOETIER_KERNEL explicit BlockOf8(const Rows8& rows) {
    if constexpr (kIsSigned<T>) {
      d = T::load(rows, s);
#if defined(MOETIER_VNNI)
      for (int j = 0; j < 8; ++j) u[j] = _mm256_xor_si256(s[j], _mm256_set1_epi8(-128));
#else
      for (int j = 0; j < 8; ++j) u[j] = _mm256_abs_epi8(s[j]);
#endif
    } else if constexpr (kHasOffset<T>) {
      d = T::load(rows, u);
    } else {
      d = T::load(rows, u, m);
    }
  }

  MOETIER_KERNEL __m256i sum(const int8_t* codes) const {
    [[maybe_unused]] const __m256i ones = _mm256_set1_epi16(1);
    __m256i total;
#if defined(MOETIER_VNNI)
    total = add_dots<8>(_mm256_setzero_si256(), u, codes);
#else
    if constexpr (kIsSigned<T>) {
      const auto four = [&](int j) {
        const __m256i turned = _mm256_sign_epi8(broadcast4(codes + 4 * j), s[j]);
        return widen_sums(_mm256_maddubs_epi16(u[j], turned), ones);
      };
      total = four(0);
      for (int j = 1; j < 8; ++j) total = _mm256_add_epi32(total, four(j));
    } else {
      total = widen_sums(pair_sums<T::kSums>(u, codes), ones);
      for (int j = T::kSums; j < 8; j += T::kSums) {
        total = _mm256_add_epi32(total, widen_sums(pair_sums<T::kSums>(u + j, codes + 4 * j), ones));
      }
    }
#endif
    return total;
  }

  template <bool kFlush>
  MOETIER_KERNEL __m256 term(const Codes32& x) const {
    const __m256 a = _mm256_set1_ps(x.scale);
    __m256i total = sum(x.codes);
    if constexpr (kIsSigned<T>) {
#if defined(MOETIER_VNNI)
      total = _mm256_sub_epi32(total, _mm256_slli_epi32(broadcast4(&x.sum), 7));
#endif
      return scaled<kFlush>(d, a, total);
    } else if constexpr (kHasOffset<T>) {
      total = _mm256_sub_epi32(total, times<T::kOffset>(broadcast4(&x.sum)));
      return scaled<kFlush>(d, a, total);
    } else {
      return _mm256_add_ps(scaled<kFlush>(d, a, total), scaled<kFlush>(m, a, _mm256_set1_epi32(x.sum)));
    }
  }
};

/// The terms of eight rows' blocks and one activation row, for types whose codes are nibbles, at most 32 as values():
/// rows are multiplied as they lie, and what is transposed are their sums, which are fewer.
template <typename T, bool kFlush>
MOETIER_KERNEL __m256 term_of_nibbles(const Rows8& rows, const Codes32& x) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  const __m256i x_low = broadcast16(x.codes), x_high = broadcast16(x.codes + 16);
  const auto sums = [&](int i) {  // of rows i and 4 + i: four dwords that fit in words
    const __m256i v = load_pair(rows, i, offsetof(typename T::Block, qs));
    const __m256i low = _mm256_and_si256(v, mask), high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    return sums_of_eight(T::values(low), T::values(high), x_low, x_high);
  };
  __m256i without = _mm256_setzero_si256();
  if constexpr (kHasOffset<T>) {
    // The sum of codes fits in a word; its upper word (the sign) is multiplied by 0. Half of it for each dword.
    static_assert(T::kOffset % 2 == 0);
    without = _mm256_madd_epi16(broadcast4(&x.sum), _mm256_set1_epi32(-T::kOffset / 2 & 0xffff));
  }
  const __m256i first = dot2(without, _mm256_packs_epi32(sums(0), sums(1)), ones);
  const __m256i second = dot2(without, _mm256_packs_epi32(sums(2), sums(3)), ones);
  const __m256i total = _mm256_hadd_epi32(first, second);
  const __m256 a = _mm256_set1_ps(x.scale);
  if constexpr (kHasOffset<T>) {
    return scaled<kFlush>(T::scales(rows), a, total);
  } else {
    __m256 m;
    const __m256 d = T::scales(rows, m);
    return _mm256_add_ps(scaled<kFlush>(d, a, total), scaled<kFlush>(m, a, _mm256_set1_epi32(x.sum)));
  }
}

template <typename T>
constexpr bool kIsNibbles = requires(__m256i v) {
  T::values(v);
};

/// Eight rows times one activation row.
template <typename T, bool kFlush>
MOETIER_KERNEL void panel32_one(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* x, float* sums) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  const auto* codes = reinterpret_cast<const Codes32*>(x);
  __m256 total = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int64_t end = begin + kBlocksPerSegment < blocks ? begin + kBlocksPerSegment : blocks;
    __m256 segment = _mm256_setzero_ps();
    for (int64_t b = begin; b < end; ++b) {
      prefetch(ahead, 8 * kBytes);
      ahead += 8 * kBytes;
      __m256 term;
      if constexpr (kIsNibbles<T>) {
        term = term_of_nibbles<T, kFlush>(rows, codes[b]);
      } else {
        term = BlockOf8<T>(rows).template term<kFlush>(codes[b]);
      }
      segment = _mm256_add_ps(segment, term);
      rows.advance(kBytes);
    }
    total = _mm256_add_ps(total, segment);
  }
  _mm256_store_ps(sums, total);
}

/// Eight rows times `n` activation rows.
template <typename T, bool kFlush>
MOETIER_KERNEL void panel32(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                            float (*sums)[8]) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  __m256 total[kDotTile], segment[kDotTile];
  for (int t = 0; t < n; ++t) total[t] = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int64_t end = begin + kBlocksPerSegment < blocks ? begin + kBlocksPerSegment : blocks;
    for (int t = 0; t < n; ++t) segment[t] = _mm256_setzero_ps();
    for (int64_t b = begin; b < end; ++b) {
      prefetch(ahead, 8 * kBytes);
      ahead += 8 * kBytes;
      const BlockOf8<T> block(rows);
      rows.advance(kBytes);
      for (int t = 0; t < n; ++t) {
        segment[t] = _mm256_add_ps(segment[t], block.template term<kFlush>(reinterpret_cast<const Codes32*>(x[t])[b]));
      }
    }
    for (int t = 0; t < n; ++t) total[t] = _mm256_add_ps(total[t], segment[t]);
  }
  for (int t = 0; t < n; ++t) _mm256_store_ps(sums[t], total[t]);
}

template <typename T, DotFn DotTable::*kPortable>
void dot32(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return (portable_dots().*kPortable)(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 32;
  // MXFP4's scales may be small themselves.
  const bool flush = std::is_same_v<T, MXFP4> || needs_flush<Codes32>(x, n, blocks, last - first);
  for_panels(w, first, last, out, n, [&](const Rows8& rows, Ahead ahead, float(*sums)[8]) {
    if (n == 1) {
      flush ? panel32_one<T, true>(rows, blocks, ahead, x[0], sums[0])
            : panel32_one<T, false>(rows, blocks, ahead, x[0], sums[0]);
    } else {
      flush ? panel32<T, true>(rows, blocks, ahead, x, n, sums) : panel32<T, false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

MOETIER_KERNEL void put_block_dots(DotTable& table) {
  table.q8_0 = dot32<Q8_0, &DotTable::q8_0>;
  table.q4_0 = dot32<Q4_0, &DotTable::q4_0>;
  table.q4_1 = dot32<Q4_1, &DotTable::q4_1>;
  table.q5_0 = dot32<Q5_0, &DotTable::q5_0>;
  table.q5_1 = dot32<Q5_1, &DotTable::q5_1>;
  table.iq4_nl = dot32<IQ4_NL, &DotTable::iq4_nl>;
  table.mxfp4 = dot32<MXFP4, &DotTable::mxfp4>;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
