// AMX dots of the K types. A super-block's integer sum has every weight code multiplied by its sub-block's scale. Such
// a product does not fit in a byte, but two do: code * scale = high * kBase + low. With them a tile goes on through all
// 256 columns, and the sum is that of the high bytes times kBase plus that of the low ones.
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include "compute/cpu/dot_amx.h"
#include "compute/cpu/dot_k_avx512.h"

namespace moetier::amx {
namespace {

using namespace avx512;

constexpr int kBlocks = kSegment / 256;
constexpr int kTileColumns = 64, kTilesPerBlock = 256 / kTileColumns;

/// The activations of a segment.
struct Activations {
  alignas(64) int8_t codes[kGroups][kBlocks][kTilesPerBlock][kGroupRows][kTileColumns];
  alignas(64) int16_t sums32[kGroups][kBlocks][kGroupRows][8];
  float scales[kGroups][kBlocks][kGroupRows];
  bool tiny;  ///< a scale is below 2^-76, but not zero: products have to be flushed

  /// Rows that a group lacks have codes of 0.
  void clear(const Grouping& g) {
    if (g.groups * g.rows == g.n) return;
    std::memset(codes[g.groups - 1], 0, sizeof(codes[0]));
  }

  MOETIER_KERNEL void pack(const std::byte* const* x, const Grouping& g, int64_t first, int blocks) {
    SmallestScale smallest;
    int group = 0, row = 0;
    for (int t = 0; t < g.n; ++t, ++row) {
      if (row == g.rows) ++group, row = 0;
      for (int b = 0; b < blocks; ++b) {
        const Codes256& from = block_of(x[t], first + b);
        for (int j = 0; j < kTilesPerBlock; ++j) {
          _mm512_store_si512(codes[group][b][j][row], _mm512_loadu_si512(from.codes + kTileColumns * j));
        }
        std::memcpy(sums32[group][b][row], from.sums32, sizeof(from.sums32));
        scales[group][b][row] = from.scale;
        smallest.add(from.scale);
      }
    }
    tiny = !smallest.at_least(0x1p-76f);
  }
};

/// A super-block of sixteen weight rows: codes times scales in two planes, vector i with columns 4i to 4i + 3.
struct Planes {
  alignas(64) uint8_t high[64][64];
  alignas(64) uint8_t low[64][64];
};

// --- Q4_K and Q5_K: a scale is 8 * high + low, digits to 7; a code to 31 times a digit is a byte without a sign. Both
// bytes of a word are multiplied at once, since the lower product does not reach into the upper one. ---

template <typename T>
struct Unsigned {
  using Block = typename T::Block;
  static constexpr int kShift = 3;
  static constexpr bool kSigned = false, kHasMins = true;

  __m512 d, dmin;
  __m512i mins[4];

  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    const ScalesMinsOf16 head(rows);
    d = head.d, dmin = head.dmin;
    for (int i = 0; i < 4; ++i) mins[i] = head.mins[i];
    const typename T::FifthBits fifth(rows);
    add_pair<0>(rows, head, fifth, planes), add_pair<1>(rows, head, fifth, planes);
    add_pair<2>(rows, head, fifth, planes), add_pair<3>(rows, head, fifth, planes);
  }

  /// The sub-blocks 2 * kPair (low nibbles) and 2 * kPair + 1 (high nibbles).
  template <int kPair>
  MOETIER_KERNEL static void add_pair(const Rows16& rows, const ScalesMinsOf16& head,
                                      const typename T::FifthBits& fifth, Planes& planes) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i even[8], odd[8];
    load_transposed(rows, offsetof(Block, qs) + 32 * kPair, even);
    load_transposed(rows, offsetof(Block, qs) + 32 * kPair + 16, even + 4);
    for (int j = 0; j < 8; ++j) {
      odd[j] = _mm512_and_si512(_mm512_srli_epi16(even[j], 4), mask);
      even[j] = _mm512_and_si512(even[j], mask);
    }
    fifth.template add<2 * kPair>(even);
    fifth.template add<2 * kPair + 1>(odd);
    constexpr int kByte = 2 * kPair % 4;
    const __m512i bytes = kPair < 2 ? head.scales03 : head.scales47;
    store(even, bytes_to_words<kByte, kByte>(bytes), planes, 16 * kPair);
    store(odd, bytes_to_words<kByte + 1, kByte + 1>(bytes), planes, 16 * kPair + 8);
  }

  /// A sub-block's codes times its scale, given twice in words, from vector `at` on.
  MOETIER_KERNEL static void store(const __m512i u[8], __m512i scale, Planes& planes, int at) {
    const __m512i high = _mm512_srli_epi16(scale, kShift), low = _mm512_and_si512(scale, _mm512_set1_epi16(7));
    for (int j = 0; j < 8; ++j) {
      _mm512_store_si512(planes.high[at + j], _mm512_mullo_epi16(u[j], high));
      _mm512_store_si512(planes.low[at + j], _mm512_mullo_epi16(u[j], low));
    }
  }
};

// --- Q6_K: (code - 32) * scale, 14 bits with a sign, is cut into 7 upper ones with the sign and 7 lower ones. ---

struct Signed {
  using Block = BlockQ6_K;
  static constexpr int kShift = 7;
  static constexpr bool kSigned = true, kHasMins = false;

  __m512 d;

  MOETIER_KERNEL void decode(const Rows16& rows, Planes& planes) {
    __m512i scale_bytes[4];
    load_transposed(rows, offsetof(Block, scales), scale_bytes);
    d = _mm512_cvtph_ps(gather16(rows, offsetof(Block, d)));
    add<0, 0>(rows, scale_bytes, planes), add<0, 1>(rows, scale_bytes, planes);
    add<1, 0>(rows, scale_bytes, planes), add<1, 1>(rows, scale_bytes, planes);
  }

  template <int kH, int kHalf>
  MOETIER_KERNEL static void add(const Rows16& rows, const __m512i scale_bytes[4], Planes& planes) {
    __m512i u[16], scales[4];
    load_planes<kH, kHalf>(rows, u);
    load_scales<kH, kHalf>(scale_bytes, scales);
    const __m512i even_bytes = _mm512_set1_epi16(0xff), seven = _mm512_set1_epi8(0x7f);
    for (int p = 0; p < 4; ++p) {
      // The scale in both words, and 32 times it.
      const __m512i scale = _mm512_mask_mov_epi16(_mm512_slli_epi32(scales[p], 16), 0x55555555u, scales[p]);
      const __m512i offset = _mm512_slli_epi16(scale, 5);
      for (int j = 0; j < 4; ++j) {
        const __m512i code = u[4 * p + j];
        const auto times = [&](__m512i words) { return _mm512_sub_epi16(_mm512_mullo_epi16(words, scale), offset); };
        const __m512i even = times(_mm512_and_si512(code, even_bytes)), odd = times(_mm512_srli_epi16(code, 8));
        // high: bits 7-14 of both; low: bits 0-6 of both.
        const __m512i high = _mm512_ternarylogic_epi32(even_bytes, _mm512_srli_epi16(even, 7),
                                                       _mm512_slli_epi16(odd, 1), 0xca);  // even_bytes ? b : c
        const __m512i low =
            _mm512_and_si512(_mm512_ternarylogic_epi32(even_bytes, even, _mm512_slli_epi16(odd, 8), 0xca), seven);
        const int at = 32 * kH + 8 * p + 4 * kHalf + j;
        _mm512_store_si512(planes.high[at], high);
        _mm512_store_si512(planes.low[at], low);
      }
    }
  }
};

/// The int32 products of a group and a panel in one super-block: of the high bytes and of the low ones.
struct Products {
  alignas(64) int32_t high[kGroupRows][kPanel];
  alignas(64) int32_t low[kGroupRows][kPanel];
};

/// The four tiles of a group's activations in a super-block, times the weights.
template <typename T>
MOETIER_KERNEL void multiply(const int8_t (*codes)[kGroupRows][kTileColumns], const Planes& w, Products& out) {
  _tile_zero(0);
  _tile_zero(1);
  const auto even = [&](int j) {
    _tile_loadd(2, codes[j], kTileColumns);
    _tile_loadd(4, w.high[16 * j], 64);
    _tile_loadd(5, w.low[16 * j], 64);
    if constexpr (T::kSigned) {
      _tile_dpbssd(0, 2, 4);
      _tile_dpbssd(1, 2, 5);
    } else {
      _tile_dpbsud(0, 2, 4);
      _tile_dpbsud(1, 2, 5);
    }
  };
  const auto odd = [&](int j) {
    _tile_loadd(3, codes[j], kTileColumns);
    _tile_loadd(6, w.high[16 * j], 64);
    _tile_loadd(7, w.low[16 * j], 64);
    if constexpr (T::kSigned) {
      _tile_dpbssd(0, 3, 6);
      _tile_dpbssd(1, 3, 7);
    } else {
      _tile_dpbsud(0, 3, 6);
      _tile_dpbsud(1, 3, 7);
    }
  };
  even(0), odd(1), even(2), odd(3);
  _tile_stored(0, out.high, 64);
  _tile_stored(1, out.low, 64);
  written();
}

template <bool kFlush>
MOETIER_KERNEL __m512 scaled_sum(__m512 d, __m512 a, __m512i sum) {
  const __m512 product = _mm512_mul_ps(d, a);
  return _mm512_mul_ps(kFlush ? flush16(product) : product, _mm512_cvtepi32_ps(sum));
}

/// Adds the terms of super-block `b` of the segment to the segment sums of a group.
template <typename T, bool kFlush>
MOETIER_KERNEL void add_terms(const T& weights, const Activations& x, int group, int b, int count,
                              const Products& products, float (*segment)[kPanel]) {
  const T head = weights;  // a copy that no store can change, for registers
  for (int t = 0; t < count; ++t) {
    const __m512i high = _mm512_slli_epi32(_mm512_load_si512(products.high[t]), T::kShift);
    const __m512i sum = _mm512_add_epi32(high, _mm512_load_si512(products.low[t]));
    const __m512 a = _mm512_set1_ps(x.scales[group][b][t]);
    __m512 term = scaled_sum<kFlush>(head.d, a, sum);
    if constexpr (T::kHasMins) {
      __m512i min_sum = _mm512_setzero_si512();
      for (int i = 0; i < 4; ++i) {
        min_sum = _mm512_dpwssd_epi32(min_sum, head.mins[i], broadcast4(&x.sums32[group][b][t][2 * i]));
      }
      term = _mm512_sub_ps(term, scaled_sum<kFlush>(head.dmin, a, min_sum));
    }
    const __m512 before = b == 0 ? _mm512_setzero_ps() : _mm512_load_ps(segment[t]);
    _mm512_store_ps(segment[t], _mm512_add_ps(before, term));
  }
}

/// One segment of a call: blocks [begin, begin + blocks) of weight rows [first, last).
template <typename T>
MOETIER_KERNEL void run_segment(const WeightMatrix& w, int64_t first, int64_t last, int64_t begin, int blocks,
                                const Activations& x, const Grouping& g, float* const* out) {
  constexpr size_t kBytes = sizeof(typename T::Block);
  Planes planes;
  Products products[kGroups];
  alignas(64) float segment[kGroups][kGroupRows][kPanel];
  const size_t offset = static_cast<size_t>(begin) * kBytes;
  for_panels(w, first, last, offset, [&](Rows16 rows, const std::byte* next, int64_t base, __mmask16 mask) {
    prefetch_rows(next, w.row_bytes, static_cast<size_t>(blocks) * kBytes);
    for (int b = 0; b < blocks; ++b) {
      T head;
      head.decode(rows, planes);
      rows.advance(kBytes);
      written();
      for (int group = 0; group < g.groups; ++group) multiply<T>(x.codes[group][b], planes, products[group]);
      for (int group = 0; group < g.groups; ++group) {
        const int count = g.rows_of(group);
        if (x.tiny) {
          add_terms<T, true>(head, x, group, b, count, products[group], segment[group]);
        } else {
          add_terms<T, false>(head, x, group, b, count, products[group], segment[group]);
        }
      }
    }
    for (int group = 0; group < g.groups; ++group) {
      for (int t = 0; t < g.rows_of(group); ++t) {
        float* to = out[group * g.rows + t] + (base - first);
        add_segment(to, mask, begin == 0, _mm512_load_ps(segment[group][t]));
      }
    }
  });
}

template <typename T, DotFn DotTable::*kFew>
void dot256(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out, int n) {
  if (w.rows < kPanel || n < kFewestRows) return (avx512_dots()->*kFew)(w, first, last, x, out, n);
  const Grouping g(n);
  const Tiles::Shape rows{g.rows, 64}, weights{16, 64};
  const Tiles tiles({rows, rows, rows, rows, weights, weights, weights, weights});
  Activations activations;
  activations.clear(g);
  const int64_t all_blocks = w.columns / 256;
  for (int64_t begin = 0; begin < all_blocks; begin += kBlocks) {
    const int64_t left = all_blocks - begin;
    const int blocks = left < kBlocks ? static_cast<int>(left) : kBlocks;
    activations.pack(x, g, begin, blocks);
    written();
    run_segment<T>(w, first, last, begin, blocks, activations, g, out);
  }
}

}  // namespace

constinit const DotFn kDotQ4K = amx::dot256<Unsigned<Q4_K>, &DotTable::q4_k>;
constinit const DotFn kDotQ5K = amx::dot256<Unsigned<Q5_K>, &DotTable::q5_k>;
constinit const DotFn kDotQ6K = amx::dot256<Signed, &DotTable::q6_k>;

}  // namespace moetier::amx

#endif
