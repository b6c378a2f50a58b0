#include "compute/cpu/attention_ops.h"

#if defined(__aarch64__)

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
MOETIER_INLINE const typename Type::Stored* row(const BlockRows& rows, int position) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(position) * rows.stride);
}

/// The dots of q with kKeys keys, without the last step of tree16. The width is a multiple of 8.
template <typename Type, int kKeys>
MOETIER_INLINE void dots(const float* q, const BlockRows& keys, int j, Partials* sums) {
  const typename Type::Stored* k[kKeys];
  for (int i = 0; i < kKeys; ++i) k[i] = row<Type>(keys, j + i);
  const auto add4 = [&](int64_t c, int part) {
    const float32x4_t four = vld1q_f32(q + c);
    for (int i = 0; i < kKeys; ++i) {
      sums[i].p[part] = vaddq_f32(sums[i].p[part], vmulq_f32(four, Type::load(k[i] + c)));
    }
  };
  int64_t c = 0;
  for (; c + 16 <= keys.width; c += 16) {
    for (int part = 0; part < 4; ++part) add4(c + 4 * part, part);
  }
  for (int part = 0; c < keys.width; c += 4) add4(c, part++);
}

template <typename Type>
void scores(const float* q, const BlockRows& keys, int first, int last, float scale, float* s) {
  int j = first;
  for (; j + 4 <= last; j += 4) {
    Partials sums[4] = {Partials(0.0f), Partials(0.0f), Partials(0.0f), Partials(0.0f)};
    dots<Type, 4>(q, keys, j, sums);
    vst1q_f32(s + j, vmulq_n_f32(num::tree_of_4(sums[0], sums[1], sums[2], sums[3]), scale));
  }
  for (; j < last; ++j) {
    Partials sums(0.0f);
    dots<Type, 1>(q, keys, j, &sums);
    s[j] = scale * sums.tree();
  }
}

/// 4 * N columns of the weighted sum of values, from column c.
template <typename Type, int N>
MOETIER_INLINE void weigh_columns(const float* p, const BlockRows& values, int first, int last, int64_t c, float* o) {
  float32x4_t sum[N];
  for (int i = 0; i < N; ++i) sum[i] = vdupq_n_f32(0.0f);
  for (int j = first; j < last; ++j) {
    const typename Type::Stored* v = row<Type>(values, j) + c;
    for (int i = 0; i < N; ++i) sum[i] = vaddq_f32(sum[i], vmulq_n_f32(Type::load(v + 4 * i), p[j]));
  }
  for (int i = 0; i < N; ++i) vst1q_f32(o + c + 4 * i, sum[i]);
}

template <typename Type>
void weigh(const float* p, const BlockRows& values, int first, int last, float* o) {
  int64_t c = 0;
  for (; c + 64 <= values.width; c += 64) weigh_columns<Type, 16>(p, values, first, last, c, o);
  for (; c + 32 <= values.width; c += 32) weigh_columns<Type, 8>(p, values, first, last, c, o);
  for (; c < values.width; c += 8) weigh_columns<Type, 2>(p, values, first, last, c, o);
}

void block(const float* q, const BlockRows& keys, const BlockRows& values, int first, int last, float scale,
           AttentionState& state) {
  constexpr float kLowest = -__builtin_inff();
  float s[kPagePositions];
  for (float& x : s) x = kLowest;
  (keys.half ? scores<Half> : scores<Single>)(q, keys, first, last, scale, s);
  Partials maxima(kLowest);
  for (int j = 0; j < kPagePositions; j += 4) {
    maxima.p[j / 4 % 4] = num::max4(maxima.p[j / 4 % 4], vld1q_f32(s + j));
  }
  state.m = maxima.max_tree();
  const float32x4_t m = vdupq_n_f32(state.m);
  Partials sums(0.0f);
  for (int j = first - first % 4; j < last; j += 4) {
    // Lanes of invisible positions become +0, which changes no sum.
    const uint32x4_t visible = vbicq_u32(num::lanes4(last - j), num::lanes4(first - j));
    const float32x4_t p = num::masked4(num::exp4(vsubq_f32(vld1q_f32(s + j), m)), visible);
    vst1q_f32(s + j, p);
    sums.p[j / 4 % 4] = vaddq_f32(sums.p[j / 4 % 4], p);
  }
  state.l = sums.tree();
  (values.half ? weigh<Half> : weigh<Single>)(s, values, first, last, state.o);
}

void merge(AttentionState& state, const AttentionState& next, int64_t width) {
  const float m = num::max(state.m, next.m);
  const float a = num::exp(state.m - m), b = num::exp(next.m - m);
  state.m = m;
  state.l = state.l * a + next.l * b;
  for (int64_t c = 0; c < width; c += 4) {
    const float32x4_t o = vmulq_n_f32(vld1q_f32(state.o + c), a);
    vst1q_f32(state.o + c, vaddq_f32(o, vmulq_n_f32(vld1q_f32(next.o + c), b)));
  }
}

void finish(const AttentionState& state, int64_t n, float* out) {
  const float factor = 1.0f / state.l;
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) vst1q_f32(out + c, vmulq_n_f32(vld1q_f32(state.o + c), factor));
  for (; c < n; ++c) out[c] = state.o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_neon() {
  static constexpr AttentionOps kOps{block, merge, finish};
  return kOps;
}

}  // namespace moetier::cpu

#endif
