#include <limits>

#include "compute/cpu/attention_ops.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/math.h"
#include "quant/half.h"

namespace moetier::cpu {
namespace {

struct Half {
  using Stored = uint16_t;
  static float widen(uint16_t h) { return f16_to_f32(h); }
};
struct Single {
  using Stored = float;
  static float widen(float f) { return f; }
};

template <typename Type>
float dot16(const float* q, const typename Type::Stored* k, int64_t n) {
  float partial[16] = {};
  for (int64_t c = 0; c < n; c += 16) {
    for (int i = 0; i < 16; ++i) partial[i] = partial[i] + q[c + i] * Type::widen(k[c + i]);
  }
  return num::tree16(partial);
}

template <typename Type>
const typename Type::Stored* row(const BlockRows& rows, int index) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(index) * rows.stride);
}

template <typename Type>
void scores_of(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int64_t i = 0; i < n; ++i) {
    for (int j = first; j < last; ++j) {
      s[i * kPagePositions + j] = scale * dot16<Type>(q + i * keys.width, row<Type>(keys, j - first), keys.width);
    }
  }
}

void scores(const float* q, int64_t n, const BlockRows& keys, int first, int last, float scale, float* s) {
  (keys.half ? scores_of<Half> : scores_of<Single>)(q, n, keys, first, last, scale, s);
}

void softmax(float* s, int64_t n, int first, int last, float* m, float* l) {
  float partial[16];
  for (int64_t i = 0; i < n; ++i, s += kPagePositions) {
    for (float& x : partial) x = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < kPagePositions; ++j) {
      const float x = first <= j && j < last ? s[j] : -std::numeric_limits<float>::infinity();
      partial[j % 16] = num::max(partial[j % 16], x);
    }
    m[i] = num::max_tree16(partial);
    for (float& x : partial) x = 0.0f;
    for (int j = first; j < last; ++j) {
      s[j] = num::exp(s[j] - m[i]);
      partial[j % 16] = partial[j % 16] + s[j];
    }
    l[i] = num::tree16(partial);
  }
}

template <typename Type>
void weigh_by(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  for (int64_t i = 0; i < n; ++i, p += kPagePositions, o += values.width) {
    for (int j = first; j < last; ++j) {
      const typename Type::Stored* v = row<Type>(values, j - first);
      for (int64_t c = 0; c < values.width; ++c) o[c] = o[c] + p[j] * Type::widen(v[c]);
    }
  }
}

void weigh(const float* p, int64_t n, const BlockRows& values, int first, int last, float* o) {
  (values.half ? weigh_by<Half> : weigh_by<Single>)(p, n, values, first, last, o);
}

void merge(const AttentionStates& states, const AttentionStates& next, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; ++i) {
    const float m = num::max(states.m[i], next.m[i]);
    const float a = num::exp(states.m[i] - m), b = num::exp(next.m[i] - m);
    states.m[i] = m;
    states.l[i] = states.l[i] * a + next.l[i] * b;
    float* o = states.o + i * width;
    const float* more = next.o + i * width;
    for (int64_t c = 0; c < width; ++c) o[c] = o[c] * a + more[c] * b;
  }
}

void finish(const float* o, float l, int64_t n, float* out) {
  const float factor = 1.0f / l;
  for (int64_t c = 0; c < n; ++c) out[c] = o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_portable() {
  static constexpr AttentionOps kOps{scores, softmax, weigh, merge, finish};
  return kOps;
}

const AttentionOps& attention_ops(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return attention_ops_avx512();
  if (isa_has_avx2(isa)) return attention_ops_avx2();
#elif defined(__aarch64__)
  if (isa == Isa::neon) return attention_ops_neon();
#endif
  (void)isa;
  return attention_ops_portable();
}

}  // namespace moetier::cpu
