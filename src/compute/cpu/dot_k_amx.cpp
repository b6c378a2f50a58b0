// AMX dots of the K types.
#if defined(__x86_64__)

#include "compute/cpu/super_blocks_amx.h"

namespace moetier::amx {
namespace {

// --- Q4_K and Q5_K: a scale is 8 * high + low, digits to 7; a code to 31 times a digit is a byte without a sign. Both
// bytes of a word are multiplied at once, since the lower product does not reach into the upper one. ---

template <typename T>
struct Unsigned {
  using Block = typename T::Block;
  static constexpr int kShift = 3;
  static constexpr int kPlanes = 2, kMins = 8;
  static constexpr bool kSigned = false;

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
  static constexpr int kPlanes = 2, kMins = 0;
  static constexpr bool kSigned = true;

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

}  // namespace

void add_k_dots(DotTable& table) {
  table.q4_k = amx::dot256<Unsigned<Q4_K>, &DotTable::q4_k>;
  table.q5_k = amx::dot256<Unsigned<Q5_K>, &DotTable::q5_k>;
  table.q6_k = amx::dot256<Signed, &DotTable::q6_k>;
}

}  // namespace moetier::amx

#endif
