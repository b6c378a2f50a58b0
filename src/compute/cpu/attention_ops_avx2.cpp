#include "compute/cpu/attention_ops.h"

#if defined(__x86_64__)

#include <algorithm>

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
MOETIER_INLINE const typename Type::Stored* row(const BlockRows& rows, int index) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(index) * rows.stride);
}

/// One level of tree16 for two vectors at once: [a0+a4, a1+a5, a2+a6, a3+a7, b0+b4, ...]. An addition's sides are
/// swapped in half of the lanes, which changes no bit.
MOETIER_INLINE __m256 fold8(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
}

/// The last three levels of tree16 for eight vectors of partial sums: their totals in order.
MOETIER_INLINE __m256 totals8(const __m256* v) {
  __m256 four[4];
  for (int i = 0; i < 4; ++i) four[i] = fold8(v[i], v[i + 4]);
  const auto fold4 = [](__m256 a, __m256 b) {
    const __m256 low = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
    const __m256 high = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
    return _mm256_add_ps(low, high);
  };
  const __m256 ab = fold4(four[0], four[1]), cd = fold4(four[2], four[3]);
  return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd));
}

/// The partial sums p[8 * side] to p[8 * side + 7] of the dots of Q queries with K keys.
template <typename Type, int Q, int K>
MOETIER_INLINE void partial_dots(const float* const* q, const typename Type::Stored* const* k, int64_t width, int side,
                                 __m256* sums) {
  for (int i = 0; i < Q * K; ++i) sums[i] = _mm256_setzero_ps();
  for (int64_t c = 8 * side; c < width; c += 16) {
    __m256 keys[K];
    for (int j = 0; j < K; ++j) keys[j] = Type::load(k[j] + c);
    for (int i = 0; i < Q; ++i) {
      __m256 query = _mm256_loadu_ps(q[i] + c);
      asm("" : "+x"(query));  // in a register: a load in each product would make loads the bound
      for (int j = 0; j < K; ++j) sums[i * K + j] = _mm256_add_ps(sums[i * K + j], _mm256_mul_ps(query, keys[j]));
    }
  }
}

/// Eight dots: of Q queries with K keys, Q * K = 8; times scale.
template <typename Type, int Q, int K>
MOETIER_INLINE __m256 dots8(const float* const* q, const typename Type::Stored* const* k, int64_t width, float scale) {
  static_assert(Q * K == 8);
  __m256 low[8], high[8];
  partial_dots<Type, Q, K>(q, k, width, 0, low);
  partial_dots<Type, Q, K>(q, k, width, 1, high);
  for (int i = 0; i < 8; ++i) low[i] = _mm256_add_ps(low[i], high[i]);
  return _mm256_mul_ps(_mm256_set1_ps(scale), totals8(low));
}

/// One query with all keys, eight at a time.
template <typename Type>
void scores_of_one(const float* q, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int j = first; j < last; j += 8) {
    const typename Type::Stored* k[8];
    for (int i = 0; i < 8; ++i) k[i] = row<Type>(keys, std::min(j + i, last - 1) - first);
    const __m256 dots = dots8<Type, 1, 8>(&q, k, keys.width, scale);
    if (j + 8 <= last) {
      _mm256_storeu_ps(s + j, dots);
    } else {
      _mm256_maskstore_ps(s + j, num::lanes8(last - j), dots);
    }
  }
}

/// Four queries with all keys, two at a time.
template <typename Type>
void scores_of_four(const float* const* q, const BlockRows& keys, int first, int last, float scale, float* const* s) {
  for (int j = first; j < last; j += 2) {
    const bool pair = j + 1 < last;
    const typename Type::Stored* k[2] = {row<Type>(keys, j - first), row<Type>(keys, j - first + (pair ? 1 : 0))};
    const __m256 dots = dots8<Type, 4, 2>(q, k, keys.width, scale);
    const __m128 halves[2] = {_mm256_castps256_ps128(dots), _mm256_extractf128_ps(dots, 1)};
    for (int i = 0; i < 4; i += 2) {
      if (pair) {
        _mm_storel_pi(reinterpret_cast<__m64*>(s[i] + j), halves[i / 2]);
        _mm_storeh_pi(reinterpret_cast<__m64*>(s[i + 1] + j), halves[i / 2]);
      } else {
        _mm_store_ss(s[i] + j, halves[i / 2]);
        _mm_store_ss(s[i + 1] + j, _mm_movehl_ps(halves[i / 2], halves[i / 2]));
      }
    }
  }
}

template <typename Type>
void scores_by(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int64_t i = 0; i < n; i += 4) {
    if (i + 1 == n) {
      scores_of_one<Type>(q + i * keys.width, keys, first, last, scale, s + i * kPagePositions);
      return;
    }
    // Where two or three are left, the last is taken several times.
    const float* queries[4];
    float* rows[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = std::min(i + k, n - 1);
      queries[k] = q + at * keys.width;
      rows[k] = s + at * kPagePositions;
    }
    scores_of_four<Type>(queries, keys, first, last, scale, rows);
  }
}

void scores(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  (keys.half ? scores_by<Half> : scores_by<Single>)(q, n, keys, first, last, scale, s);
}

void softmax(float* s, int64_t n, int first, int last, float* m, float* l) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  for (int64_t i = 0; i < n; ++i, s += kPagePositions) {
    // Invisible positions count as -infinity for the maximum, and as +0 for the sum, which changes nothing there.
    const auto visible = [&](int j) {
      return _mm256_castsi256_ps(_mm256_andnot_si256(num::lanes8(first - j), num::lanes8(last - j)));
    };
    __m256 max[2] = {lowest, lowest};
    for (int j = 0; j < kPagePositions; j += 8) {
      const __m256 seen = _mm256_blendv_ps(lowest, _mm256_loadu_ps(s + j), visible(j));
      max[j / 8 % 2] = _mm256_max_ps(max[j / 8 % 2], seen);
    }
    m[i] = num::max_tree16(max[0], max[1]);
    const __m256 most = _mm256_set1_ps(m[i]);
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int j = first - first % 8; j < last; j += 8) {
      const __m256 p = _mm256_and_ps(num::exp8(_mm256_sub_ps(_mm256_loadu_ps(s + j), most)), visible(j));
      _mm256_storeu_ps(s + j, p);
      sums[j / 8 % 2] = _mm256_add_ps(sums[j / 8 % 2], p);
    }
    l[i] = num::tree16(sums[0], sums[1]);
  }
}

/// 8 * C columns of Q weighted sums, from column c.
template <typename Type, int Q, int C>
MOETIER_INLINE void weigh_columns(const float* const* p, const BlockRows& values, int first, int last, int64_t c,
                                  float* const* o) {
  __m256 sums[Q * C];
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) sums[i * C + k] = _mm256_loadu_ps(o[i] + c + 8 * k);
  }
  for (int j = first; j < last; ++j) {
    const typename Type::Stored* v = row<Type>(values, j - first) + c;
    __m256 value[C];
    for (int k = 0; k < C; ++k) value[k] = Type::load(v + 8 * k);
    for (int i = 0; i < Q; ++i) {
      const __m256 weight = _mm256_broadcast_ss(p[i] + j);
      for (int k = 0; k < C; ++k) sums[i * C + k] = _mm256_add_ps(sums[i * C + k], _mm256_mul_ps(weight, value[k]));
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) _mm256_storeu_ps(o[i] + c + 8 * k, sums[i * C + k]);
  }
}

template <typename Type>
void weigh_by(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  const int64_t width = values.width;
  for (int64_t i = 0; i < n; i += 4) {
    const float* weights[4];
    float* sums[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = std::min(i + k, n - 1);  // the last several times: the same sums are stored again
      weights[k] = p + at * kPagePositions;
      sums[k] = o + at * width;
    }
    int64_t c = 0;
    if (i + 1 == n) {
      for (; c + 64 <= width; c += 64) weigh_columns<Type, 1, 8>(weights, values, first, last, c, sums);
      for (; c < width; c += 16) weigh_columns<Type, 1, 2>(weights, values, first, last, c, sums);
    } else {
      for (; c < width; c += 16) weigh_columns<Type, 4, 2>(weights, values, first, last, c, sums);
    }
  }
}

void weigh(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  (values.half ? weigh_by<Half> : weigh_by<Single>)(p, n, values, first, last, o);
}

void merge(const AttentionStates& states, const AttentionStates& next, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; i += 8) {
    const int count = static_cast<int>(std::min<int64_t>(8, n - i));
    const __m256i lanes = num::lanes8(count);
    const __m256 m_old = _mm256_maskload_ps(states.m + i, lanes), m_new = _mm256_maskload_ps(next.m + i, lanes);
    const __m256 m = _mm256_max_ps(m_old, m_new);
    const __m256 a = num::exp8(_mm256_sub_ps(m_old, m)), b = num::exp8(_mm256_sub_ps(m_new, m));
    const __m256 l = _mm256_add_ps(_mm256_mul_ps(_mm256_maskload_ps(states.l + i, lanes), a),
                                   _mm256_mul_ps(_mm256_maskload_ps(next.l + i, lanes), b));
    _mm256_maskstore_ps(states.m + i, lanes, m);
    _mm256_maskstore_ps(states.l + i, lanes, l);
    alignas(32) float factors[2][8];
    _mm256_store_ps(factors[0], a);
    _mm256_store_ps(factors[1], b);
    for (int k = 0; k < count; ++k) {
      const __m256 a8 = _mm256_set1_ps(factors[0][k]), b8 = _mm256_set1_ps(factors[1][k]);
      float* o = states.o + (i + k) * width;
      const float* more = next.o + (i + k) * width;
      for (int64_t c = 0; c < width; c += 8) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(o + c), a8);
        _mm256_storeu_ps(o + c, _mm256_add_ps(scaled, _mm256_mul_ps(_mm256_loadu_ps(more + c), b8)));
      }
    }
  }
}

void finish(const float* o, float l, int64_t n, float* out) {
  const float factor = 1.0f / l;
  const __m256 factor8 = _mm256_set1_ps(factor);
  int64_t c = 0;
  for (; c + 8 <= n; c += 8) _mm256_storeu_ps(out + c, _mm256_mul_ps(_mm256_loadu_ps(o + c), factor8));
  for (; c < n; ++c) out[c] = o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_avx2() {
  static constexpr AttentionOps kOps{scores, softmax, weigh, merge, finish};
  return kOps;
}

}  // namespace moetier::cpu

#endif
