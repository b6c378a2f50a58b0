// AVX2 dots of NVFP4: 64 weights in a block, a scale for each 16, two blocks of activations.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_avx2.h"
#include "quant/low_bit_blocks.h"

namespace moetier::avx2 {
namespace {

constexpr int kBlocksPerSegment = 8;

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

  /// Four pair sums of magnitudes up to 12 fit in int16.
  MOETIER_KERNEL __m256i sum(const int8_t* codes) const {
    const auto pairs = [&](int j) {
      return _mm256_maddubs_epi16(u[j], _mm256_sign_epi8(broadcast4(codes + 4 * j), s[j]));
    };
    const __m256i all = _mm256_add_epi16(_mm256_add_epi16(pairs(0), pairs(1)), _mm256_add_epi16(pairs(2), pairs(3)));
    return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
  }
};

/// Two groups: 32 columns.
template <int kHalf>
MOETIER_KERNEL void add_half(const Rows8& rows, __m256i scale_bytes, const std::byte* const* x, int64_t b, int count,
                             __m256* terms) {
  __m256i packed[4];
  load_transposed(rows, offsetof(BlockNVFP4, qs) + 16 * kHalf, packed);
  const GroupOf8 first(packed), second(packed + 2);
  const __m256 d0 = scales_of_group<2 * kHalf>(scale_bytes), d1 = scales_of_group<2 * kHalf + 1>(scale_bytes);
  for (int t = 0; t < count; ++t) {
    const Codes32& codes = reinterpret_cast<const Codes32*>(x[t])[2 * b + kHalf];
    const __m256 a = _mm256_set1_ps(codes.scale);
    const __m256 both =
        _mm256_add_ps(scaled(d0, a, first.sum(codes.codes)), scaled(d1, a, second.sum(codes.codes + 16)));
    terms[t] = kHalf == 0 ? both : _mm256_add_ps(terms[t], both);
  }
}

template <bool kOne>
MOETIER_KERNEL void panel64(Rows8 rows, int64_t blocks, Ahead ahead, const std::byte* const* x, int n,
                            float (*sums)[8]) {
  constexpr int kRows = kOne ? 1 : kDotTile;
  constexpr size_t kBytes = sizeof(BlockNVFP4);
  const int count = kOne ? 1 : n;
  __m256 total[kRows], segment[kRows], terms[kRows];
  for (int t = 0; t < count; ++t) total[t] = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int64_t end = begin + kBlocksPerSegment < blocks ? begin + kBlocksPerSegment : blocks;
    for (int t = 0; t < count; ++t) segment[t] = _mm256_setzero_ps();
    for (int64_t b = begin; b < end; ++b) {
      prefetch(ahead, 8 * kBytes);
      ahead += 8 * kBytes;
      const __m256i scale_bytes = gather32(rows, offsetof(BlockNVFP4, scales));
      add_half<0>(rows, scale_bytes, x, b, count, terms);
      add_half<1>(rows, scale_bytes, x, b, count, terms);
      rows.advance(kBytes);
      for (int t = 0; t < count; ++t) segment[t] = _mm256_add_ps(segment[t], terms[t]);
    }
    for (int t = 0; t < count; ++t) total[t] = _mm256_add_ps(total[t], segment[t]);
  }
  for (int t = 0; t < count; ++t) _mm256_store_ps(sums[t], total[t]);
}

void dot(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < 8) return portable_dots().nvfp4(w, first, last, x, out, n);
  const int64_t blocks = w.columns / 64;
  for_panels(w, first, last, out, n, [&](const Rows8& rows, Ahead ahead, float(*sums)[8]) {
    if (n == 1) {
      panel64<true>(rows, blocks, ahead, x, n, sums);
    } else {
      panel64<false>(rows, blocks, ahead, x, n, sums);
    }
  });
}

}  // namespace

constinit const DotFn kDotNVFP4 = dot;

}  // namespace moetier::avx2

#endif
