// How segments of NVFP4 of sixteen rows, and the activations that go with them, are prepared with AVX-512. Only for
// files named *_avx512.cpp and *_amx.cpp, which each have their own copy.
//
// A term has the integer sums of four groups of 16 columns apart, since each group has a scale of its own that is no
// integer.
#pragma once

#include "compute/cpu/dot_avx512.h"
#include "quant/low_bit_blocks.h"

namespace moetier::avx512 {
namespace {

constexpr int kSegmentBlocks64 = 8, kGroupsPerBlock = 4;
constexpr int kSegmentGroups = kSegmentBlocks64 * kGroupsPerBlock;

/// ue4m3_half() of the sixteen dwords' byte `group`.
MOETIER_KERNEL __m512 scales_of_group(__m512i dwords, int group) {
  const __m512i byte =
      _mm512_and_si512(_mm512_srli_epi32(dwords, static_cast<unsigned>(8 * group)), _mm512_set1_epi32(0x7f));
  const __mmask16 known = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(0x7f), byte);
  // As a half float with three bits of its mantissa, denormal ones too, the byte is 2^-7 of that.
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_slli_epi32(byte, 7));
  return _mm512_maskz_mul_ps(known, _mm512_cvtph_ps(half), _mm512_set1_ps(0x1p7f));
}

/// A block of sixteen rows as bytes: u[4 g + j] has columns 4 j to 4 j + 3 of group g. `values` are the sixteen values.
MOETIER_KERNEL void load_groups(const Rows16& rows, __m128i values, __m512i u[16]) {
  const __m512i table = _mm512_broadcast_i32x4(values), mask = _mm512_set1_epi8(15);
  for (int half = 0; half < 2; ++half) {
    __m512i v[4];
    load_transposed(rows, offsetof(BlockNVFP4, qs) + static_cast<size_t>(16 * half), v);
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * half + 4 * (i / 2) + i % 2;
      u[at] = _mm512_shuffle_epi8(table, _mm512_and_si512(v[i], mask));
      u[at + 2] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v[i], 4), mask));
    }
  }
}

}  // namespace
}  // namespace moetier::avx512
