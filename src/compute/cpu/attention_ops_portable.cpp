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
  int64_t c = 0;
  for (; c + 16 <= n; c += 16) {
    for (int i = 0; i < 16; ++i) partial[i] = partial[i] + q[c + i] * Type::widen(k[c + i]);
  }
  for (int64_t i = 0; c + i < n; ++i) partial[i] = partial[i] + q[c + i] * Type::widen(k[c + i]);
  return num::tree16(partial);
}

template <typename Type>
const typename Type::Stored* row(const BlockRows& rows, int position) {
  return reinterpret_cast<const typename Type::Stored*>(rows.first + static_cast<size_t>(position) * rows.stride);
}

template <typename Type>
void scores(const float* q, const BlockRows& keys, int first, int last, float scale, float* s) {
  for (int j = first; j < last; ++j) s[j] = scale * dot16<Type>(q, row<Type>(keys, j), keys.width);
}

template <typename Type>
void weigh(const float* p, const BlockRows& values, int first, int last, float* o) {
  for (int64_t c = 0; c < values.width; ++c) o[c] = 0.0f;
  for (int j = first; j < last; ++j) {
    const typename Type::Stored* v = row<Type>(values, j);
    for (int64_t c = 0; c < values.width; ++c) o[c] = o[c] + p[j] * Type::widen(v[c]);
  }
}

void block(const float* q, const BlockRows& keys, const BlockRows& values, int first, int last, float scale,
           AttentionState& state) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float s[kPagePositions];
  float partial[16];
  for (float& x : s) x = kLowest;
  (keys.half ? scores<Half> : scores<Single>)(q, keys, first, last, scale, s);
  for (float& x : partial) x = kLowest;
  for (int j = 0; j < kPagePositions; ++j) partial[j % 16] = num::max(partial[j % 16], s[j]);
  state.m = num::max_tree16(partial);
  for (float& x : partial) x = 0.0f;
  for (int j = first; j < last; ++j) {
    s[j] = num::exp(s[j] - state.m);
    partial[j % 16] = partial[j % 16] + s[j];
  }
  state.l = num::tree16(partial);
  (values.half ? weigh<Half> : weigh<Single>)(s, values, first, last, state.o);
}

void merge(AttentionState& state, const AttentionState& next, int64_t width) {
  const float m = num::max(state.m, next.m);
  const float a = num::exp(state.m - m), b = num::exp(next.m - m);
  state.m = m;
  state.l = state.l * a + next.l * b;
  for (int64_t c = 0; c < width; ++c) state.o[c] = state.o[c] * a + next.o[c] * b;
}

void finish(const AttentionState& state, int64_t n, float* out) {
  const float factor = 1.0f / state.l;
  for (int64_t c = 0; c < n; ++c) out[c] = state.o[c] * factor;
}

}  // namespace

const AttentionOps& attention_ops_portable() {
  static constexpr AttentionOps kOps{block, merge, finish};
  return kOps;
}

const AttentionOps& attention_ops(Isa isa) {
#if defined(__x86_64__)
  if (isa_has_avx2(isa)) return attention_ops_avx2();
#endif
  (void)isa;
  return attention_ops_portable();
}

}  // namespace moetier::cpu
