// Attention's steps with the sixteen partial sums of a dot as one vector.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include "compute/cpu/attention_ops.h"
#include "compute/cpu/math_avx512.h"

namespace moetier::cpu {
namespace {

struct Half {
  using Stored = uint16_t;
  MOETIER_INLINE static __m512 load(const uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};
struct Single {
  using Stored = float;
  MOETIER_INLINE static __m512 load(const float* at) { return _mm512_loadu_ps(at); }
};

template <typename Type>
MOETIER_INLINE const typename Type::Stored* row(const BlockRows& rows, int index) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(index) * rows.stride);
}

/// The first n of sixteen lanes, 0 <= n.
MOETIER_INLINE __mmask16 lanes16(int n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

/// tree16 of sixteen vectors of partial sums at once: their totals in order. An addition's sides are swapped in some
/// lanes, which changes no bit.
MOETIER_INLINE __m512 totals16(const __m512* v) {
  __m512 eight[8], four[4];
  // Of each pair: [a0+a8 .. a7+a15, b0+b8 .. b7+b15].
  for (int i = 0; i < 8; ++i) {
    const __m512 a = v[2 * i], b = v[2 * i + 1];
    eight[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
  }
  // Four partial sums of v[4 * i] to v[4 * i + 3].
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  const auto fold4 = [](__m512 a, __m512 b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  };
  const __m512 ab = fold4(four[0], four[1]), cd = fold4(four[2], four[3]);
  // Lane 4 * i + j is the total of v[4 * j + i].
  const __m512 mixed = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, mixed);
}

/// Sixteen dots of Q queries with K keys, query after query, Q * K = 16; times scale.
template <typename Type, int Q, int K>
MOETIER_INLINE __m512 dots16(const float* const* q, const typename Type::Stored* const* k, int64_t width, float scale) {
  static_assert(Q * K == 16);
  __m512 sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t c = 0; c < width; c += 16) {
    __m512 query[Q];
    for (int i = 0; i < Q; ++i) query[i] = _mm512_loadu_ps(q[i] + c);
    for (int j = 0; j < K; ++j) {
      const __m512 key = Type::load(k[j] + c);
      for (int i = 0; i < Q; ++i) sums[i * K + j] = _mm512_add_ps(sums[i * K + j], _mm512_mul_ps(query[i], key));
    }
  }
  return _mm512_mul_ps(_mm512_set1_ps(scale), totals16(sums));
}

/// Q queries with all keys; a query beyond the end is the last again.
template <typename Type, int Q>
MOETIER_INLINE void scores_of(const float* const* q, const BlockRows& keys, int first, int last, float scale,
                              float* const* s) {
  constexpr int K = 16 / Q;
  for (int j = first; j < last; j += K) {
    const typename Type::Stored* k[K];
    for (int i = 0; i < K; ++i) k[i] = row<Type>(keys, (j + i < last ? j + i : last - 1) - first);
    const __m512 dots = dots16<Type, Q, K>(q, k, keys.width, scale);
    const __mmask16 lanes = lanes16(last - j < K ? last - j : K);
    for (int i = 0; i < Q; ++i) {
      const auto mask = static_cast<__mmask16>(lanes << (i * K));
      // Lane i * K goes to s[i] + j.
      _mm512_mask_storeu_ps(s[i] + j - i * K, mask, dots);
    }
  }
}

template <typename Type>
void scores_by(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int64_t i = 0; i < n; i += 4) {
    const float* queries[4];
    float* rows[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = i + k < n ? i + k : n - 1;
      queries[k] = q + at * keys.width;
      rows[k] = s + at * kPagePositions;
    }
    if (i + 1 == n) {
      scores_of<Type, 1>(queries, keys, first, last, scale, rows);
    } else {
      scores_of<Type, 4>(queries, keys, first, last, scale, rows);
    }
  }
}

void scores(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  (keys.half ? scores_by<Half> : scores_by<Single>)(q, n, keys, first, last, scale, s);
}

void softmax(float* s, int64_t n, int first, int last, float* m, float* l) {
  constexpr int kParts = kPagePositions / 16;
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  // Invisible positions count as -infinity for the maximum, and as +0 for the sum, which changes nothing there.
  __mmask16 visible[kParts];
  for (int i = 0; i < kParts; ++i) {
    const int from = first - 16 * i, to = last - 16 * i;
    visible[i] = static_cast<__mmask16>(lanes16(to > 0 ? to : 0) & ~lanes16(from > 0 ? from : 0));
  }
  for (int64_t i = 0; i < n; ++i, s += kPagePositions) {
    __m512 max = lowest, score[kParts];
    for (int k = 0; k < kParts; ++k) {
      score[k] = _mm512_mask_loadu_ps(lowest, visible[k], s + 16 * k);
      max = _mm512_max_ps(max, score[k]);
    }
    m[i] = num::max_tree16(max);
    const __m512 most = _mm512_set1_ps(m[i]);
    __m512 sum = _mm512_setzero_ps();
    for (int k = 0; k < kParts; ++k) {
      const __m512 p = _mm512_maskz_mov_ps(visible[k], num::exp16(_mm512_sub_ps(score[k], most)));
      _mm512_storeu_ps(s + 16 * k, p);
      sum = _mm512_add_ps(sum, p);
    }
    l[i] = num::tree16(sum);
  }
}

/// 16 * C columns of Q weighted sums, from column c.
template <typename Type, int Q, int C>
MOETIER_INLINE void weigh_columns(const float* const* p, const BlockRows& values, int first, int last, int64_t c,
                                  float* const* o) {
  __m512 sums[Q * C];
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) sums[i * C + k] = _mm512_loadu_ps(o[i] + c + 16 * k);
  }
  const std::byte* at = values.first + static_cast<size_t>(c) * sizeof(typename Type::Stored);
  const size_t stride = values.stride;
  for (int j = first; j < last; ++j, at += stride) {
    const auto* v = reinterpret_cast<const typename Type::Stored*>(at);
    __m512 value[C];
    for (int k = 0; k < C; ++k) value[k] = Type::load(v + 16 * k);
    for (int i = 0; i < Q; ++i) {
      const __m512 weight = _mm512_set1_ps(p[i][j]);
      for (int k = 0; k < C; ++k) sums[i * C + k] = _mm512_add_ps(sums[i * C + k], _mm512_mul_ps(weight, value[k]));
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) _mm512_storeu_ps(o[i] + c + 16 * k, sums[i * C + k]);
  }
}

template <typename Type, int Q>
MOETIER_INLINE void weigh_rows(const float* const* p, const BlockRows& values, int first, int last, float* const* o) {
  int64_t c = 0;
  for (; c + 64 <= values.width; c += 64) weigh_columns<Type, Q, 4>(p, values, first, last, c, o);
  for (; c < values.width; c += 16) weigh_columns<Type, Q, 1>(p, values, first, last, c, o);
}

template <typename Type>
void weigh_by(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  for (int64_t i = 0; i < n; i += 4) {
    const float* weights[4];
    float* sums[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = i + k < n ? i + k : n - 1;  // the last several times: the same sums are stored again
      weights[k] = p + at * kPagePositions;
      sums[k] = o + at * values.width;
    }
    if (i + 1 == n) {
      weigh_rows<Type, 1>(weights, values, first, last, sums);
    } else {
      weigh_rows<Type, 4>(weights, values, first, last, sums);
    }
  }
}

void weigh(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  (values.half ? weigh_by<Half> : weigh_by<Single>)(p, n, values, first, last, o);
}

void merge(const AttentionStates& states, const AttentionStates& next, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const __mmask16 lanes = lanes16(count);
    const __m512 m_old = _mm512_maskz_loadu_ps(lanes, states.m + i), m_new = _mm512_maskz_loadu_ps(lanes, next.m + i);
    const __m512 m = _mm512_max_ps(m_old, m_new);
    const __m512 a = num::exp16(_mm512_sub_ps(m_old, m)), b = num::exp16(_mm512_sub_ps(m_new, m));
    const __m512 l = _mm512_add_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, states.l + i), a),
                                   _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, next.l + i), b));
    _mm512_mask_storeu_ps(states.m + i, lanes, m);
    _mm512_mask_storeu_ps(states.l + i, lanes, l);
    alignas(64) float factors[2][16];
    _mm512_store_ps(factors[0], a);
    _mm512_store_ps(factors[1], b);
    for (int k = 0; k < count; ++k) {
      const __m512 a16 = _mm512_set1_ps(factors[0][k]), b16 = _mm512_set1_ps(factors[1][k]);
      float* o = states.o + (i + k) * width;
      const float* more = next.o + (i + k) * width;
      for (int64_t c = 0; c < width; c += 16) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(o + c), a16);
        _mm512_storeu_ps(o + c, _mm512_add_ps(scaled, _mm512_mul_ps(_mm512_loadu_ps(more + c), b16)));
      }
    }
  }
}

}  // namespace

const AttentionOps& attention_ops_avx512() {
  static const AttentionOps kOps{scores, softmax, weigh, merge, attention_ops_avx2().finish};
  return kOps;
}

}  // namespace moetier::cpu

#endif
