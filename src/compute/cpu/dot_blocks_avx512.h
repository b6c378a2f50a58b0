// How blocks of 32 weights of sixteen rows are decoded with AVX-512. Only for files named *_avx512.cpp and *_amx.cpp,
// which each have their own copy.
#pragma once

#include "compute/cpu/dot_avx512.h"
#include "quant/blocks.h"

namespace moetier::avx512 {
namespace {

constexpr int kBlocksPerSegment = 16;

// --- how a type's block becomes eight vectors of unsigned codes (vector j: columns 4j to 4j + 3 of the rows) ---

/// Low nibbles are columns 0-15, high ones 16-31.
MOETIER_KERNEL void load_nibbles(const Rows16& rows, size_t offset, __m512i u[8]) {
  const __m512i mask = _mm512_set1_epi8(15);
  load_transposed(rows, offset, u);
  for (int j = 0; j < 4; ++j) {
    u[j + 4] = _mm512_and_si512(_mm512_srli_epi16(u[j], 4), mask);
    u[j] = _mm512_and_si512(u[j], mask);
  }
}

/// Adds the fifth bits: bit j of a row's dword belongs to column j.
MOETIER_KERNEL void add_fifth_bits(__m512i qh, __m512i u[8]) {
  const __m512i sixteen = _mm512_set1_epi8(16);
  const __m512i bits[2] = {_mm512_set1_epi32(0x08040201), _mm512_set1_epi32(static_cast<int>(0x80402010u))};
  __m512i byte = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  for (int j = 0; j < 8; j += 2) {
    const __m512i spread = _mm512_shuffle_epi8(qh, byte);
    byte = _mm512_add_epi8(byte, _mm512_set1_epi8(1));
    for (int i = 0; i < 2; ++i) {
      u[j + i] = _mm512_mask_add_epi8(u[j + i], _mm512_test_epi8_mask(spread, bits[i]), u[j + i], sixteen);
    }
  }
}

/// The table value of every code.
MOETIER_KERNEL void look_up(const uint8_t (&table)[16], __m512i u[8]) {
  const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  for (int j = 0; j < 8; ++j) u[j] = _mm512_shuffle_epi8(values, u[j]);
}

/// The scales of types that have one f16 at the start of the block.
MOETIER_KERNEL __m512 load_scales(const Rows16& rows) {
  return _mm512_cvtph_ps(gather16(rows, 0));
}

// With an offset: u is the weight's code plus kOffset, so the integer sum is sum u*c - kOffset * sum c.

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr int kOffset = 8;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8]) {
    load_nibbles(rows, offsetof(Block, qs), u);
    return load_scales(rows);
  }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr int kOffset = 16;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8]) {
    load_nibbles(rows, offsetof(Block, qs), u);
    add_fifth_bits(gather32(rows, offsetof(Block, qh)), u);
    return load_scales(rows);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr int kOffset = 12;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8]) {
    static constexpr uint8_t kValues[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    load_nibbles(rows, offsetof(Block, qs), u);
    look_up(kValues, u);
    // 2^(e - 128) has the exponent field e - 1; below 2^-100 (e < 28) the scale is flushed.
    const __m256i bytes = _mm256_and_si256(gather16(rows, offsetof(Block, e)), _mm256_set1_epi16(255));
    const __m512i e = _mm512_cvtepu16_epi32(bytes);
    const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(_mm512_maskz_mov_epi32(_mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(27)), bits));
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr int kOffset = 128;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8]) {
    load_transposed(rows, offsetof(Block, qs), u);
    load_transposed(rows, offsetof(Block, qs) + 16, u + 4);
    for (int j = 0; j < 8; ++j) u[j] = _mm512_xor_si512(u[j], _mm512_set1_epi8(-128));
    return load_scales(rows);
  }
};

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr int kOffset = 128;
  struct Table {
    uint8_t values[16];
    constexpr Table() : values{} {
      for (int i = 0; i < 16; ++i) values[i] = static_cast<uint8_t>(kIq4Values[static_cast<size_t>(i)] + 128);
    }
  };
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8]) {
    static constexpr Table kTable;
    load_nibbles(rows, offsetof(Block, qs), u);
    look_up(kTable.values, u);
    return load_scales(rows);
  }
};

// With a minimum: the integer sum is sum u*c, and m goes with sum c.

struct Q4_1 {
  using Block = BlockQ4_1;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8], __m512& m) {
    load_nibbles(rows, offsetof(Block, qs), u);
    __m512 d;
    halves_to_floats(gather32(rows, 0), d, m);
    return d;
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  MOETIER_KERNEL static __m512 load(const Rows16& rows, __m512i u[8], __m512& m) {
    load_nibbles(rows, offsetof(Block, qs), u);
    add_fifth_bits(gather32(rows, offsetof(Block, qh)), u);
    __m512 d;
    halves_to_floats(gather32(rows, 0), d, m);
    return d;
  }
};

template <typename T>
constexpr bool kHasOffset = requires {
  T::kOffset;
};

}  // namespace
}  // namespace moetier::avx512
