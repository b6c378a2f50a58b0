// AVX-512 dots of the K types: super-blocks of 256 weights with integer sub-scales.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/dot_avx512.h"
#include "quant/blocks.h"

namespace moetier::avx512 {
namespace {

constexpr int kBlocksPerSegment = 2;

/// For each dword lane: its bytes kLow and kHigh (0-3) as two words, sign-extended or not.
template <int kLow, int kHigh, bool kSigned = false>
MOETIER_KERNEL __m512i bytes_to_words(__m512i v) {
  constexpr auto kIndex = [](int byte, int lane) { return static_cast<char>(4 * lane + byte); };
  const __m128i pattern =
      _mm_setr_epi8(-1, kIndex(kLow, 0), -1, kIndex(kHigh, 0), -1, kIndex(kLow, 1), -1, kIndex(kHigh, 1),  //
                    -1, kIndex(kLow, 2), -1, kIndex(kHigh, 2), -1, kIndex(kLow, 3), -1, kIndex(kHigh, 3));
  const __m512i high = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(pattern));
  return kSigned ? _mm512_srai_epi16(high, 8) : _mm512_srli_epi16(high, 8);
}

MOETIER_KERNEL const Codes256& block_of(const std::byte* x, int64_t b) {
  return reinterpret_cast<const Codes256*>(x)[b];
}

// --- Q4_K and Q5_K ---

/// What stands at the start of the rows' blocks.
struct ScalesMinsOf16 {
  __m512 d, dmin;
  __m512i scales03, scales47;  ///< a byte for each sub-block
  __m512i mins[4];             ///< mins of sub-blocks 2i and 2i + 1, as words

  MOETIER_KERNEL explicit ScalesMinsOf16(const Rows16& rows) {
    __m512i v[4];
    load_transposed(rows, 0, v);
    halves_to_floats(v[0], d, dmin);
    // The same unpacking as unpack_scales_mins(), for sixteen rows.
    const __m512i six = _mm512_set1_epi8(0x3f), nibble = _mm512_set1_epi8(0x0f), top = _mm512_set1_epi8(0x30);
    const auto join = [&](__m512i low, __m512i high) {
      return _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(_mm512_srli_epi16(high, 2), top));
    };
    scales03 = _mm512_and_si512(v[1], six), scales47 = join(v[3], v[1]);
    const __m512i mins03 = _mm512_and_si512(v[2], six), mins47 = join(_mm512_srli_epi16(v[3], 4), v[2]);
    mins[0] = bytes_to_words<0, 1>(mins03), mins[1] = bytes_to_words<2, 3>(mins03);
    mins[2] = bytes_to_words<0, 1>(mins47), mins[3] = bytes_to_words<2, 3>(mins47);
  }

  template <int kSubBlock>
  MOETIER_KERNEL __m512 scale() const {
    const __m512i bytes = _mm512_srli_epi32(kSubBlock < 4 ? scales03 : scales47, 8 * (kSubBlock % 4));
    return _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(255)));
  }

  /// flush(d*a) * float(total) - flush(dmin*a) * float(sum of min * sum c).
  MOETIER_KERNEL __m512 term(const Codes256& x, __m512i total) const {
    __m512i min_sum = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) min_sum = _mm512_dpwssd_epi32(min_sum, mins[i], broadcast4(x.sums32 + 2 * i));
    const __m512 a = _mm512_set1_ps(x.scale);
    return _mm512_sub_ps(scaled(d, a, total), scaled(dmin, a, min_sum));
  }
};

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr int kPairs = 2;  ///< pairs of sub-blocks whose scaled sums float32 holds exactly
  struct FifthBits {
    MOETIER_KERNEL explicit FifthBits(const Rows16&) {}
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m512i*) const {}
  };
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr int kPairs = 1;
  struct FifthBits {
    __m512i bits[8];  ///< bit k: the fifth bit of sub-block k's weight
    MOETIER_KERNEL explicit FifthBits(const Rows16& rows) {
      load_transposed(rows, offsetof(Block, qh), bits);
      load_transposed(rows, offsetof(Block, qh) + 16, bits + 4);
    }
    template <int kSubBlock>
    MOETIER_KERNEL void add(__m512i* u) const {
      const __m512i sixteen = _mm512_set1_epi8(16);
      for (int j = 0; j < 8; ++j) {
        const __m512i moved = kSubBlock < 4 ? _mm512_slli_epi16(bits[j], kSubBlock < 4 ? 4 - kSubBlock : 0)
                                            : _mm512_srli_epi16(bits[j], kSubBlock < 4 ? 0 : kSubBlock - 4);
        u[j] = _mm512_ternarylogic_epi32(u[j], moved, sixteen, 0xf8);  // u | (moved & sixteen)
      }
    }
  };
};

/// Scaled sums on the way. A product of a sub-block's sum and its scale, and kPairs pairs of them, are integers below
/// 2^24 (32 columns of codes to 15 or 31 times 127 times a scale to 63), which float32 adds and multiplies without
/// rounding, in any order and fused or not: one instruction where int32 has none.
struct Sums {
  __m512 exact;
  __m512i whole;
};

/// The sub-blocks 2 * kPair (low nibbles) and 2 * kPair + 1 (high nibbles), for all activation rows.
template <typename T, int kPair>
MOETIER_KERNEL void add_pair(const Rows16& rows, const ScalesMinsOf16& head, const typename T::FifthBits& fifth,
                             const std::byte* const* x, int64_t b, int count, Sums* sums) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i low[8], high[8];
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair, low);
  load_transposed(rows, offsetof(typename T::Block, qs) + 32 * kPair + 16, low + 4);
  for (int j = 0; j < 8; ++j) {
    high[j] = _mm512_and_si512(_mm512_srli_epi16(low[j], 4), mask);
    low[j] = _mm512_and_si512(low[j], mask);
  }
  fifth.template add<2 * kPair>(low);
  fifth.template add<2 * kPair + 1>(high);
  const __m512 low_scale = head.scale<2 * kPair>(), high_scale = head.scale<2 * kPair + 1>();
  for (int t = 0; t < count; ++t) {
    const int8_t* codes = block_of(x[t], b).codes + 64 * kPair;
    const __m512 a = _mm512_cvtepi32_ps(add_dots<8>(_mm512_setzero_si512(), low, codes));
    const __m512 c = _mm512_cvtepi32_ps(add_dots<8>(_mm512_setzero_si512(), high, codes + 32));
    const __m512 first =
        kPair % T::kPairs == 0 ? _mm512_mul_ps(a, low_scale) : _mm512_fmadd_ps(a, low_scale, sums[t].exact);
    const __m512 exact = _mm512_fmadd_ps(c, high_scale, first);
    if constexpr ((kPair + 1) % T::kPairs != 0) {
      sums[t].exact = exact;
    } else if constexpr (kPair + 1 == T::kPairs) {
      sums[t].whole = _mm512_cvtps_epi32(exact);
    } else {
      sums[t].whole = _mm512_add_epi32(sums[t].whole, _mm512_cvtps_epi32(exact));
    }
  }
}

/// Adds one super-block's terms to the segments.
template <typename T>
MOETIER_KERNEL void add_block(const Rows16& rows, const std::byte* const* x, int64_t b, int count, Sums* sums,
                              __m512* segment) {
  const ScalesMinsOf16 head(rows);
  const typename T::FifthBits fifth(rows);
  add_pair<T, 0>(rows, head, fifth, x, b, count, sums);
  add_pair<T, 1>(rows, head, fifth, x, b, count, sums);
  add_pair<T, 2>(rows, head, fifth, x, b, count, sums);
  add_pair<T, 3>(rows, head, fifth, x, b, count, sums);
  for (int t = 0; t < count; ++t) segment[t] = _mm512_add_ps(segment[t], head.term(block_of(x[t], b), sums[t].whole));
}

// --- Q6_K ---

struct Q6_K {
  using Block = BlockQ6_K;
};

/// Half kHalf (16 columns of each of the four planes) of the 128 weights number kH: sub-blocks 8 kH + 2 p + kHalf.
template <int kH, int kHalf>
MOETIER_KERNEL void add_planes(const Rows16& rows, const __m512i scale_bytes[4], const std::byte* const* x, int64_t b,
                               int count, Sums* sums) {
  const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8(0x30);
  __m512i a[4], c[4], h[4], u[16];
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 16 * kHalf, a);
  load_transposed(rows, offsetof(BlockQ6_K, ql) + 64 * kH + 32 + 16 * kHalf, c);
  load_transposed(rows, offsetof(BlockQ6_K, qh) + 32 * kH + 16 * kHalf, h);
  // (v & low) | (top & high)
  const auto join = [&](__m512i v, __m512i top) {
    return _mm512_ternarylogic_epi32(_mm512_and_si512(v, low), top, high, 0xf8);
  };
  for (int j = 0; j < 4; ++j) {
    u[j] = join(a[j], _mm512_slli_epi16(h[j], 4));
    u[j + 4] = join(c[j], _mm512_slli_epi16(h[j], 2));
    u[j + 8] = join(_mm512_srli_epi16(a[j], 4), h[j]);
    u[j + 12] = join(_mm512_srli_epi16(c[j], 4), _mm512_srli_epi16(h[j], 2));
  }
  // p = 0, 1 in dword 2 kH of the scales, p = 2, 3 in the next.
  const auto scale = [&](int p) {
    const __m512i raised = _mm512_slli_epi32(scale_bytes[2 * kH + p / 2], 24 - 8 * (2 * (p % 2) + kHalf));
    return _mm512_srai_epi32(raised, 24);
  };
  const __m512i scales[4] = {scale(0), scale(1), scale(2), scale(3)};
  for (int t = 0; t < count; ++t) {
    const int8_t* codes = block_of(x[t], b).codes + 128 * kH + 16 * kHalf;
    const auto product = [&](int p) {
      return _mm512_mullo_epi32(add_dots<4>(_mm512_setzero_si512(), u + 4 * p, codes + 32 * p), scales[p]);
    };
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(product(0), product(1)),  //
                                         _mm512_add_epi32(product(2), product(3)));
    sums[t].whole = kH + kHalf == 0 ? sum : _mm512_add_epi32(sums[t].whole, sum);
  }
}

/// sum u*c less 32 * sum of scale * sum c: the codes are stored with an offset.
MOETIER_KERNEL __m512i without_offset(__m512i total, const __m512i scale_pairs[8], const Codes256& x) {
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < 8; ++i) sum = _mm512_dpwssd_epi32(sum, scale_pairs[i], broadcast4(x.sums16 + 2 * i));
  return _mm512_sub_epi32(total, _mm512_slli_epi32(sum, 5));
}

MOETIER_KERNEL void add_block_k6(const Rows16& rows, const std::byte* const* x, int64_t b, int count, Sums* sums,
                                 __m512* segment) {
  __m512i scale_bytes[4], scale_pairs[8];
  load_transposed(rows, offsetof(BlockQ6_K, scales), scale_bytes);
  const __m512 d = _mm512_cvtph_ps(gather16(rows, offsetof(BlockQ6_K, d)));
  add_planes<0, 0>(rows, scale_bytes, x, b, count, sums);
  add_planes<0, 1>(rows, scale_bytes, x, b, count, sums);
  add_planes<1, 0>(rows, scale_bytes, x, b, count, sums);
  add_planes<1, 1>(rows, scale_bytes, x, b, count, sums);
  for (int i = 0; i < 4; ++i) {
    scale_pairs[2 * i] = bytes_to_words<0, 1, true>(scale_bytes[i]);
    scale_pairs[2 * i + 1] = bytes_to_words<2, 3, true>(scale_bytes[i]);
  }
  for (int t = 0; t < count; ++t) {
    const Codes256& codes = block_of(x[t], b);
    const __m512i total = without_offset(sums[t].whole, scale_pairs, codes);
    segment[t] = _mm512_add_ps(segment[t], scaled(d, _mm512_set1_ps(codes.scale), total));
  }
}

// --- the loop ---

template <typename T, bool kOne>
MOETIER_KERNEL void panel256(Rows16 rows, int64_t blocks, const std::byte* ahead, const std::byte* const* x, int n,
                             float (*out)[kPanel]) {
  constexpr int kRows = kOne ? 1 : kDotTile;
  constexpr size_t kBytes = sizeof(typename T::Block);
  const int count = kOne ? 1 : n;
  __m512 total[kRows], segment[kRows];
  Sums sums[kRows];
  for (int t = 0; t < count; ++t) total[t] = segment[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    prefetch(ahead, kPanel * kBytes);
    ahead += kPanel * kBytes;
    if constexpr (std::is_same_v<T, Q6_K>) {
      add_block_k6(rows, x, b, count, sums, segment);
    } else {
      add_block<T>(rows, x, b, count, sums, segment);
    }
    rows.advance(kBytes);
    if ((b + 1) % kBlocksPerSegment != 0 && b + 1 != blocks) continue;
    for (int t = 0; t < count; ++t) {
      total[t] = _mm512_add_ps(total[t], segment[t]);
      segment[t] = _mm512_setzero_ps();
    }
  }
  for (int t = 0; t < count; ++t) _mm512_store_ps(out[t], total[t]);
}

template <typename T, DotFn DotTable::*kNarrow>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  const int64_t blocks = w.columns / 256;
  for_panels(w, first, last, x, out, n, avx2_dots()->*kNarrow,
             [&](const Rows16& rows, const std::byte* ahead, float(*sums)[kPanel]) {
               if (n == 1) {
                 panel256<T, true>(rows, blocks, ahead, x, n, sums);
               } else {
                 panel256<T, false>(rows, blocks, ahead, x, n, sums);
               }
             });
}

}  // namespace

constinit const DotFn kDotQ4K = dot256<Q4_K, &DotTable::q4_k>;
constinit const DotFn kDotQ5K = dot256<Q5_K, &DotTable::q5_k>;
constinit const DotFn kDotQ6K = dot256<Q6_K, &DotTable::q6_k>;

}  // namespace moetier::avx512

#endif
