#include "compute/cpu/attention_ops.h"

#if defined(__x86_64__)

#include "compute/cpu/math_avx2.h"

namespace moetier::cpu {
namespace {

struct Half {
  using Stored = uint16_t;
  MOETIER_INLINE static __m256 load(const uint16_t* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
};
struct Single {
  using Stored = float;
  MOETIER_INLINE static __m256 load(const float* at) { return _mm256_loadu_ps(at); }
};

template <typename Type>
MOETIER_INLINE const typename Type::Stored* row(const BlockRows& rows, int position) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(position) * rows.stride);
}

/// The dots of q with four keys, in order.
template <typename Type>
MOETIER_INLINE __m128 dots4(const float* q, const BlockRows& keys, int j) {
  const typename Type::Stored* k[4];
  for (int i = 0; i < 4; ++i) k[i] = row<Type>(keys, j + i);
  __m256 low[4], high[4];
  for (int i = 0; i < 4; ++i) low[i] = high[i] = _mm256_setzero_ps();
  int64_t c = 0;
  for (; c + 16 <= keys.width; c += 16) {
    const __m256 q0 = _mm256_loadu_ps(q + c), q1 = _mm256_loadu_ps(q + c + 8);
    for (int i = 0; i < 4; ++i) {
      low[i] = _mm256_add_ps(low[i], _mm256_mul_ps(q0, Type::load(k[i] + c)));
      high[i] = _mm256_add_ps(high[i], _mm256_mul_ps(q1, Type::load(k[i] + c + 8)));
    }
  }
  if (c < keys.width) {
    const __m256 q0 = _mm256_loadu_ps(q + c);
    for (int i = 0; i < 4; ++i) low[i] = _mm256_add_ps(low[i], _mm256_mul_ps(q0, Type::load(k[i] + c)));
  }
  // tree16 of all four: 8, then 4, then across pairs of keys.
  __m128 four[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 eight = _mm256_add_ps(low[i], high[i]);
    four[i] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  const __m128 ab = _mm_add_ps(_mm_movelh_ps(four[0], four[1]), _mm_movehl_ps(four[1], four[0]));
  const __m128 cd = _mm_add_ps(_mm_movelh_ps(four[2], four[3]), _mm_movehl_ps(four[3], four[2]));
  return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}

template <typename Type>
float dot1(const float* q, const BlockRows& keys, int j) {
  const typename Type::Stored* k = row<Type>(keys, j);
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  int64_t c = 0;
  for (; c + 16 <= keys.width; c += 16) {
    low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(q + c), Type::load(k + c)));
    high = _mm256_add_ps(high, _mm256_mul_ps(_mm256_loadu_ps(q + c + 8), Type::load(k + c + 8)));
  }
  if (c < keys.width) low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(q + c), Type::load(k + c)));
  return num::tree16(low, high);
}

template <typename Type>
void scores(const float* q, const BlockRows& keys, int first, int last, float scale, float* s) {
  const __m128 factor = _mm_set1_ps(scale);
  int j = first;
  for (; j + 4 <= last; j += 4) _mm_storeu_ps(s + j, _mm_mul_ps(factor, dots4<Type>(q, keys, j)));
  for (; j < last; ++j) s[j] = scale * dot1<Type>(q, keys, j);
}

/// 8 * N columns of the weighted sum of values, from column c.
template <typename Type, int N>
MOETIER_INLINE void weigh_columns(const float* p, const BlockRows& values, int first, int last, int64_t c, float* o) {
  __m256 sum[N];
  for (int i = 0; i < N; ++i) sum[i] = _mm256_setzero_ps();
  for (int j = first; j < last; ++j) {
    const __m256 weight = _mm256_broadcast_ss(p + j);
    const typename Type::Stored* v = row<Type>(values, j) + c;
    for (int i = 0; i < N; ++i) sum[i] = _mm256_add_ps(sum[i], _mm256_mul_ps(weight, Type::load(v + 8 * i)));
  }
  for (int i = 0; i < N; ++i) _mm256_storeu_ps(o + c + 8 * i, sum[i]);
}

template <typename Type>
void weigh(const float* p, const BlockRows& values, int first, int last, float* o) {
  int64_t c = 0;
  for (; c + 64 <= values.width; c += 64) weigh_columns<Type, 8>(p, values, first, last, c, o);
  for (; c + 32 <= values.width; c += 32) weigh_columns<Type, 4>(p, values, first, last, c, o);
  for (; c < values.width; c += 8) weigh_columns<Type, 1>(p, values, first, last, c, o);
}

void block(const float* q, const BlockRows& keys, const BlockRows& values, int first, int last, float scale,
           AttentionState& state) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  alignas(32) float s[kPagePositions];
  for (int j = 0; j < kPagePositions; j += 8) _mm256_store_ps(s + j, lowest);
  (keys.half ? scores<Half> : scores<Single>)(q, keys, first, last, scale, s);
  __m256 low = lowest, high = lowest;
  for (int j = 0; j < kPagePositions; j += 16) {
    low = _mm256_max_ps(low, _mm256_load_ps(s + j));
    high = _mm256_max_ps(high, _mm256_load_ps(s + j + 8));
  }
  state.m = num::max_tree16(low, high);
  const __m256 m = _mm256_set1_ps(state.m);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int j = first - first % 8; j < last; j += 8) {
    // Lanes of invisible positions become +0, which changes no sum.
    const __m256i visible = _mm256_andnot_si256(num::lanes8(first - j), num::lanes8(last - j));
    const __m256 p = _mm256_and_ps(num::exp8(_mm256_sub_ps(_mm256_load_ps(s + j), m)), _mm256_castsi256_ps(visible));
    _mm256_store_ps(s + j, p);
    sums[j / 8 % 2] = _mm256_add_ps(sums[j / 8 % 2], p);
  }
  state.l = num::tree16(sums[0], sums[1]);
  (values.half ? weigh<Half> : weigh<Single>)(s, values, first, last, state.o);
}

void merge(AttentionState& state, const AttentionState& next, int64_t width) {
  const float m = num::max(state.m, next.m);
  const float a = num::exp(state.m - m), b = num::exp(next.m - m);
  state.m = m;
  state.l = state.l * a + next.l * b;
  const __m256 a8 = _mm256_set1_ps(a), b8 = _mm256_set1_ps(b);
  for (int64_t c = 0; c < width; c += 8) {
    const __m256 o = _mm256_mul_ps(_mm256_loadu_ps(state.o + c), a8);
    _mm256_storeu_ps(state.o + c, _mm256_add_ps(o, _mm256_mul_ps(_mm256_loadu_ps(next.o + c), b8)));
  }
}

void finish(const AttentionState& state, int64_t n, float* out) {
  const float factor = 1.0f / state.l;
  const __m256 factor8 = _mm256_set1_ps(factor);
  int64_t c = 0;
  for (; c + 8 <= n; c += 8) _mm256_storeu_ps(out + c, _mm256_mul_ps(_mm256_loadu_ps(state.o + c), factor8));
  for (; c < n; ++c) out[c] = state.o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_avx2() {
  static constexpr AttentionOps kOps{block, merge, finish};
  return kOps;
}

}  // namespace moetier::cpu

#endif
