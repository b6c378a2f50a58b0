#include "compute/cpu/attention_ops.h"

#if defined(__aarch64__)

#include <algorithm>

#include "compute/cpu/math_neon.h"

namespace moetier::cpu {
namespace {

using num::Partials;

struct Half {
  using Stored = uint16_t;
  MOETIER_INLINE static float32x4_t load(const uint16_t* at) { return num::widen_f16x4(at); }
};
struct Single {
  using Stored = float;
  MOETIER_INLINE static float32x4_t load(const float* at) { return vld1q_f32(at); }
};

template <typename Type>
MOETIER_INLINE const typename Type::Stored* row(const BlockRows& rows, int index) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(index) * rows.stride);
}

/// The partial sums p[4 * part] to p[4 * part + 3] of the dots of Q queries with K keys.
template <typename Type, int Q, int K>
MOETIER_INLINE void partial_dots(const float* const* q, const typename Type::Stored* const* k, int64_t width, int part,
                                 float32x4_t* sums) {
  for (int i = 0; i < Q * K; ++i) sums[i] = vdupq_n_f32(0.0f);
  for (int64_t c = 4 * part; c < width; c += 16) {
    float32x4_t keys[K];
    for (int j = 0; j < K; ++j) keys[j] = Type::load(k[j] + c);
    for (int i = 0; i < Q; ++i) {
      const float32x4_t query = vld1q_f32(q[i] + c);
      for (int j = 0; j < K; ++j) sums[i * K + j] = vaddq_f32(sums[i * K + j], vmulq_f32(query, keys[j]));
    }
  }
}

/// scale times the dots of Q queries with K keys, four keys in a vector.
template <typename Type, int Q, int K>
MOETIER_INLINE void dots(const float* const* q, const typename Type::Stored* const* k, int64_t width, float scale,
                         float32x4_t* out) {
  // tree16 adds partials 0 and 2, then 1 and 3, then these.
  float32x4_t sums[Q * K], others[Q * K], more[Q * K];
  const auto add = [](float32x4_t* to, const float32x4_t* from) {
    for (int i = 0; i < Q * K; ++i) to[i] = vaddq_f32(to[i], from[i]);
  };
  partial_dots<Type, Q, K>(q, k, width, 0, sums);
  partial_dots<Type, Q, K>(q, k, width, 2, more);
  add(sums, more);
  partial_dots<Type, Q, K>(q, k, width, 1, others);
  partial_dots<Type, Q, K>(q, k, width, 3, more);
  add(others, more);
  add(sums, others);
  for (int i = 0; i < Q * K; i += 4) out[i / 4] = vmulq_n_f32(num::totals_of_4(sums + i), scale);
}

/// The first `count` lanes, at most four.
MOETIER_INLINE void store_first(float* to, float32x4_t v, int count) {
  if (count >= 4) return vst1q_f32(to, v);
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int i = 0; i < count; ++i) to[i] = lanes[i];
}

/// Q queries with all keys, K at a time.
template <typename Type, int Q, int K>
MOETIER_INLINE void scores_of(const float* const* q, const BlockRows& keys, int first, int last, float scale,
                              float* const* s) {
  for (int j = first; j < last; j += K) {
    const typename Type::Stored* k[K];
    for (int i = 0; i < K; ++i) k[i] = row<Type>(keys, std::min(j + i, last - 1) - first);
    float32x4_t out[Q * K / 4];
    dots<Type, Q, K>(q, k, keys.width, scale, out);
    for (int i = 0; i < Q; ++i) {
      for (int part = 0; part < K; part += 4) store_first(s[i] + j + part, out[(i * K + part) / 4], last - j - part);
    }
  }
}

template <typename Type>
void scores_by(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int64_t i = 0; i < n; i += 4) {
    // Where two or three are left, the last is taken several times.
    const float* queries[4];
    float* rows[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = std::min(i + k, n - 1);
      queries[k] = q + at * keys.width;
      rows[k] = s + at * kPagePositions;
    }
    if (i + 1 == n) {
      scores_of<Type, 1, 8>(queries, keys, first, last, scale, rows);
    } else {
      scores_of<Type, 4, 4>(queries, keys, first, last, scale, rows);
    }
  }
}

void scores(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  (keys.half ? scores_by<Half> : scores_by<Single>)(q, n, keys, first, last, scale, s);
}

void softmax(float* s, int64_t n, int first, int last, float* m, float* l) {
  constexpr float kLowest = -__builtin_inff();
  // Invisible positions count as -infinity for the maximum, and as +0 for the sum, which changes nothing there.
  const auto visible = [&](int j) { return vbicq_u32(num::lanes4(last - j), num::lanes4(first - j)); };
  for (int64_t i = 0; i < n; ++i, s += kPagePositions) {
    Partials maxima(kLowest), sums(0.0f);
    for (int j = 0; j < kPagePositions; j += 4) {
      const float32x4_t seen = vbslq_f32(visible(j), vld1q_f32(s + j), vdupq_n_f32(kLowest));
      maxima.p[j / 4 % 4] = num::max4(maxima.p[j / 4 % 4], seen);
    }
    m[i] = maxima.max_tree();
    const float32x4_t most = vdupq_n_f32(m[i]);
    for (int j = first - first % 4; j < last; j += 4) {
      const float32x4_t p = num::masked4(num::exp4(vsubq_f32(vld1q_f32(s + j), most)), visible(j));
      vst1q_f32(s + j, p);
      sums.p[j / 4 % 4] = vaddq_f32(sums.p[j / 4 % 4], p);
    }
    l[i] = sums.tree();
  }
}

/// 4 * C columns of Q weighted sums, from column c.
template <typename Type, int Q, int C>
MOETIER_INLINE void weigh_columns(const float* const* p, const BlockRows& values, int first, int last, int64_t c,
                                  float* const* o) {
  float32x4_t sums[Q * C];
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) sums[i * C + k] = vld1q_f32(o[i] + c + 4 * k);
  }
  for (int j = first; j < last; ++j) {
    const typename Type::Stored* v = row<Type>(values, j - first) + c;
    float32x4_t value[C];
    for (int k = 0; k < C; ++k) value[k] = Type::load(v + 4 * k);
    for (int i = 0; i < Q; ++i) {
      for (int k = 0; k < C; ++k) sums[i * C + k] = vaddq_f32(sums[i * C + k], vmulq_n_f32(value[k], p[i][j]));
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int k = 0; k < C; ++k) vst1q_f32(o[i] + c + 4 * k, sums[i * C + k]);
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
      for (; c + 64 <= width; c += 64) weigh_columns<Type, 1, 16>(weights, values, first, last, c, sums);
      for (; c < width; c += 16) weigh_columns<Type, 1, 4>(weights, values, first, last, c, sums);
    } else {
      for (; c < width; c += 16) weigh_columns<Type, 4, 4>(weights, values, first, last, c, sums);
    }
  }
}

void weigh(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  (values.half ? weigh_by<Half> : weigh_by<Single>)(p, n, values, first, last, o);
}

void merge(const AttentionStates& states, const AttentionStates& next, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; i += 4) {
    const int count = static_cast<int>(std::min<int64_t>(4, n - i));
    const auto four = [count](const float* from) {
      float lanes[4] = {};
      for (int k = 0; k < count; ++k) lanes[k] = from[k];
      return vld1q_f32(lanes);
    };
    const float32x4_t m_old = four(states.m + i), m_new = four(next.m + i), m = num::max4(m_old, m_new);
    const float32x4_t a = num::exp4(vsubq_f32(m_old, m)), b = num::exp4(vsubq_f32(m_new, m));
    store_first(states.m + i, m, count);
    store_first(states.l + i, vaddq_f32(vmulq_f32(four(states.l + i), a), vmulq_f32(four(next.l + i), b)), count);
    float factors[2][4];
    vst1q_f32(factors[0], a);
    vst1q_f32(factors[1], b);
    for (int k = 0; k < count; ++k) {
      float* o = states.o + (i + k) * width;
      const float* more = next.o + (i + k) * width;
      for (int64_t c = 0; c < width; c += 4) {
        const float32x4_t scaled = vmulq_n_f32(vld1q_f32(o + c), factors[0][k]);
        vst1q_f32(o + c, vaddq_f32(scaled, vmulq_n_f32(vld1q_f32(more + c), factors[1][k])));
      }
    }
  }
}

void finish(const float* o, float l, int64_t n, float* out) {
  const float factor = 1.0f / l;
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) vst1q_f32(out + c, vmulq_n_f32(vld1q_f32(o + c), factor));
  for (; c < n; ++c) out[c] = o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_neon() {
  static constexpr AttentionOps kOps{scores, softmax, weigh, merge, finish};
  return kOps;
}

}  // namespace moetier::cpu

#endif
