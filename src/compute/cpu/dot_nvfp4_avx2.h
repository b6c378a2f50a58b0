// AVX2 dots of NVFP4: 64 weights in a block, a scale for each 16, two blocks of activations. Only for files named
// *_avx2.cpp, *_avxvnni.cpp and dot_vnni_avx512.cpp, which each have their own copy.
#pragma once

#include "compute/cpu/dot_avx2.h"
#include "quant/low_bit_blocks.h"

namespace moetier::MOETIER_AVX2_UNIT {
namespace {

constexpr int kBlocks64PerSegment = 8;

// --- one activation row: a row's values are multiplied as they lie, its sums are added up across lanes ---

/// 64 activations as the nibbles come: what belongs to low and to high ones.
struct Nvfp4Input {
  __m256i low, high;
  __m256i without;  ///< -12 times the sums of groups, twice: 0 1 0 1, 2 3 2 3
  __m256 scales;    ///< the first block's four times, the second's

  MOETIER_KERNEL explicit Nvfp4Input(const Codes32* x) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[0].codes));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[1].codes));
    const __m256i even = _mm256_permute2x128_si256(first, second, 0x20);  // groups 0 and 2
    const __m256i odd = _mm256_permute2x128_si256(first, second, 0x31);
    low = _mm256_unpacklo_epi64(even, odd), high = _mm256_unpackhi_epi64(even, odd);
    const __m256i offset = _mm256_set1_epi8(12);
    const __m256i sums = sums_of_eight(offset, offset, low, high);
    without = _mm256_madd_epi16(_mm256_packs_epi32(sums, sums), _mm256_set1_epi16(-1));
    scales = _mm256_set_m128(_mm_set1_ps(x[1].scale), _mm_set1_ps(x[0].scale));
  }
};

/// The integer sums of rows r and r + 1: groups 0 and 1 of both, groups 2 and 3 of both.
MOETIER_KERNEL __m256i sums_of_two(const std::byte* row, size_t stride, const Nvfp4Input& x) {
  const __m256i mask = _mm256_set1_epi8(15);
  const auto sums = [&](const std::byte* at) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + offsetof(BlockNVFP4, qs)));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    return sums_of_eight(fp4_plus_12(_mm256_and_si256(v, mask)), fp4_plus_12(high), x.low, x.high);
  };
  // A sum is at most 8 * 24 * 127, which fits in a word.
  return dot2(x.without, _mm256_packs_epi32(sums(row), sums(row + stride)), _mm256_set1_epi16(1));
}

/// ue4m3_half() of all scales: of rows 0 and 1 as sums_of_two() has the groups, of 2 and 3, and so on.
MOETIER_KERNEL void scales_of_pairs(__m256i dwords, __m256 pairs[4]) {
  const __m256i seven = _mm256_set1_epi8(0x7f);
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                         0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  const __m256i s = _mm256_and_si256(_mm256_shuffle_epi8(dwords, order), seven);
  const __m256i known = _mm256_andnot_si256(_mm256_cmpeq_epi8(s, seven), s);
  // As a half float with three bits of its mantissa, denormal ones too, the byte is 2^-7 of that.
  const __m256i zero = _mm256_setzero_si256();
  const __m256i first = _mm256_srli_epi16(_mm256_unpacklo_epi8(zero, known), 1);
  const __m256i second = _mm256_srli_epi16(_mm256_unpackhi_epi8(zero, known), 1);
  const auto widen = [](__m128i halves) { return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p7f)); };
  pairs[0] = widen(_mm256_castsi256_si128(first)), pairs[1] = widen(_mm256_castsi256_si128(second));
  pairs[2] = widen(_mm256_extracti128_si256(first, 1)), pairs[3] = widen(_mm256_extracti128_si256(second, 1));
}

/// The terms of eight rows' blocks.
template <bool kFlush>
MOETIER_KERNEL __m256 terms_of_eight(const Rows8& rows, const Nvfp4Input& x) {
  __m256 u[4], p[4];
  scales_of_pairs(gather32(rows, offsetof(BlockNVFP4, scales)), u);
  for (int i = 0; i < 2; ++i) {
    const auto two = static_cast<size_t>(2 * i) * rows.stride;
    p[i] = scaled<kFlush>(u[i], x.scales, sums_of_two(rows.row0 + two, rows.stride, x));
    p[2 + i] = scaled<kFlush>(u[2 + i], x.scales, sums_of_two(rows.row4 + two, rows.stride, x));
  }
  // p_0 + p_1 of four rows, p_2 + p_3 of them.
  const __m256 first = _mm256_hadd_ps(p[0], p[1]), second = _mm256_hadd_ps(p[2], p[3]);
  return _mm256_add_ps(_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31));
}

template <bool kFlush>
MOETIER_KERNEL void panel64_one(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* x, float* sums) {
  constexpr size_t kBytes = sizeof(BlockNVFP4);
  const auto* codes = reinterpret_cast<const Codes32*>(x);
  __m256 total = _mm256_setzero_ps(), segment = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    segment = _mm256_add_ps(segment, terms_of_eight<kFlush>(rows, Nvfp4Input(codes + 2 * b)));
    rows.advance(kBytes);
    if ((b + 1) % kBlocks64PerSegment != 0 && b + 1 != blocks) continue;
    total = _mm256_add_ps(total, segment);
    segment = _mm256_setzero_ps();
  }
  _mm256_store_ps(sums, total);
}

// --- many: a group of eight rows is decoded once for all ---

/// ue4m3_half() of the byte kGroup of each dword.
template <int kGroup>
MOETIER_KERNEL __m256 scales_of_group(__m256i dwords) {
  const __m256i s = _mm256_and_si256(_mm256_srli_epi32(dwords, 8 * kGroup), _mm256_set1_epi32(0x7f));
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(s, 20), _mm256_set1_epi32(119 << 23));
  const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(0x1p-10f));
  const __m256 is_small = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), s));
  const __m256 value = _mm256_blendv_ps(_mm256_castsi256_ps(normal), small, is_small);
  return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(s, _mm256_set1_epi32(0x7f))), value);
}

/// One group of the eight rows: signed values of columns 4j to 4j + 3, and their magnitudes.
struct GroupOf8 {
  __m256i s[4], u[4];

  /// `packed`: the group's eight bytes of each row, transposed.
  MOETIER_KERNEL explicit GroupOf8(const __m256i packed[2]) {
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kFp4Values.data())));
    const __m256i mask = _mm256_set1_epi8(15);
    for (int j = 0; j < 2; ++j) {
      s[j] = _mm256_shuffle_epi8(values, _mm256_and_si256(packed[j], mask));
      s[j + 2] = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(packed[j], 4), mask));
    }
    for (int j = 0; j < 4; ++j) u[j] = _mm256_abs_epi8(s[j]);
  }

  MOETIER_KERNEL __m256i sum(const int8_t* codes) const {
    const auto turned = [&](int j) { return _mm256_sign_epi8(broadcast4(codes + 4 * j), s[j]); };
#if defined(MOETIER_VNNI)
    __m256i all = dot4(_mm256_setzero_si256(), u[0], turned(0));
    for (int j = 1; j < 4; ++j) all = dot4(all, u[j], turned(j));
    return all;
#else
    // Four pair sums of magnitudes up to 12 fit in int16.
    const auto pairs = [&](int j) { return _mm256_maddubs_epi16(u[j], turned(j)); };
    const __m256i all = _mm256_add_epi16(_mm256_add_epi16(pairs(0), pairs(1)), _mm256_add_epi16(pairs(2), pairs(3)));
    return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
#endif
  }
};

/// Two groups: 32 columns.
template <int kHalf, bool kFlush>
MOETIER_KERNEL void add_half(const Rows8& rows, __m256i scale_bytes, const std::byte* const* x, int64_t b, int n,
                             __m256* terms) {
  __m256i packed[4];
  load_transposed(rows, offsetof(BlockNVFP4, qs) + 16 * kHalf, packed);
  const GroupOf8 first(packed), second(packed + 2);
  const __m256 d0 = scales_of_group<2 * kHalf>(scale_bytes), d1 = scales_of_group<2 * kHalf + 1>(scale_bytes);
  for (int t = 0; t < n; ++t) {
    const Codes32& codes = reinterpret_cast<const Codes32*>(x[t])[2 * b + kHalf];
    const __m256 a = _mm256_set1_ps(codes.scale);
    const __m256 both = _mm256_add_ps(scaled<kFlush>(d0, a, first.sum(codes.codes)),
                                      scaled<kFlush>(d1, a, second.sum(codes.codes + 16)));
    terms[t] = kHalf == 0 ? both : _mm256_add_ps(terms[t], both);
  }
}

template <bool kFlush>
MOETIER_KERNEL void panel64(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                            float (*sums)[8]) {
  constexpr size_t kBytes = sizeof(BlockNVFP4);
  __m256 total[kDotTile], segment[kDotTile], terms[kDotTile];
  for (int t = 0; t < n; ++t) total[t] = segment[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, 8 * kBytes);
    ahead += 8 * kBytes;
    const __m256i scale_bytes = gather32(rows, offsetof(BlockNVFP4, scales));
    add_half<0, kFlush>(rows, scale_bytes, x, b, n, terms);
    add_half<1, kFlush>(rows, scale_bytes, x, b, n, terms);
    rows.advance(kBytes);
    for (int t = 0; t < n; ++t) segment[t] = _mm256_add_ps(segment[t], terms[t]);
    if ((b + 1) % kBlocks64PerSegment != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < n; ++t) {
      total[t] = _mm256_add_ps(total[t], segment[t]);
      segment[t] = _mm256_setzero_ps();
    }
  }
  for (int t = 0; t < n; ++t) _mm256_store_ps(sums[t], total[t]);
}

void dot64(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return portable_dots().nvfp4(w, first, last, x, out, n);
  const int64_t blocks = w.columns / kBlock64;
  // A scale is 0 or at least 2^-10.
  const bool flush = needs_flush<Codes32>(x, n, 2 * blocks, last - first);
  for_panels(w, first, last, out, n, [&](const Rows8& rows, Ahead ahead, float(*sums)[8]) {
    if (n == 1) {
      flush ? panel64_one<true>(rows, blocks, ahead, x[0], sums[0])
            : panel64_one<false>(rows, blocks, ahead, x[0], sums[0]);
    } else {
      flush ? panel64<true>(rows, blocks, ahead, x, n, sums) : panel64<false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
