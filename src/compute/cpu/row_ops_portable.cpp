#include <cmath>
#include <cstddef>
#include <limits>

#include "compute/cpu/isa.h"
#include "compute/cpu/math.h"
#include "compute/cpu/row_ops.h"
#include "quant/blocks.h"
#include "quant/half.h"

namespace moetier::cpu {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  float partial[16] = {};
  const int64_t whole = n - n % 16;
  for (int64_t c = 0; c < whole; c += 16) {
    for (int i = 0; i < 16; ++i) partial[i] = partial[i] + x[c + i] * x[c + i];
  }
  for (int64_t c = whole; c < n; ++c) partial[c - whole] = partial[c - whole] + x[c] * x[c];
  const float mean = num::tree16(partial) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  if (weight == nullptr) {
    for (int64_t c = 0; c < n; ++c) out[c] = x[c] * scale;
  } else {
    for (int64_t c = 0; c < n; ++c) out[c] = (x[c] * scale) * weight[c];
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = a[c] + b[c];
}

void silu_glu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = num::silu(gate[c]) * up[c];
}

void gelu_glu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = num::gelu(gate[c]) * up[c];
}

void sigmoid_glu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = num::sigmoid(gate[c]) * up[c];
}

void relu_glu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = num::relu(gate[c]) * up[c];
}

void multiply(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = a[c] * b[c];
}

void scale(float factor, const float* x, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = factor * x[c];
}

void rotate_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[i], b = x[i + pairs];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + pairs] = a * sines[i] + b * cosines[i];
  }
}

void rotate_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

void softmax(const float* x, int64_t n, float* out) {
  float partial[16];
  for (float& p : partial) p = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) partial[i % 16] = num::max(partial[i % 16], x[i]);
  const float m = num::max_tree16(partial);
  for (int64_t i = 0; i < n; ++i) out[i] = num::exp(x[i] - m);
  for (float& p : partial) p = 0.0f;
  for (int64_t i = 0; i < n; ++i) partial[i % 16] = partial[i % 16] + out[i];
  const float sum = num::tree16(partial);
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] / sum;
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = f32_to_f16(x[c]);
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = f16_to_f32(x[c]);
}

}  // namespace

void from_q8_0_portable(const std::byte* x, int64_t n, float* out) {
  const auto* block = reinterpret_cast<const BlockQ8_0*>(x);
  for (int64_t c = 0; c < n; c += kBlock32, ++block) {
    const float d = f16_to_f32(block->d);
    for (int i = 0; i < kBlock32; ++i) out[c + i] = d * static_cast<float>(block->qs[i]);
  }
}

const RowOps& row_ops_portable() {
  static constexpr RowOps kOps{rms_norm, add,      silu_glu, gelu_glu,          sigmoid_glu,
                               relu_glu, multiply, scale,    rotate_halves,     rotate_neighbours,
                               softmax,  to_f16,   from_f16, from_q8_0_portable};
  return kOps;
}

const RowOps& row_ops(Isa isa) {
#if defined(__x86_64__)
  if (isa_has_avx2(isa)) return row_ops_avx2();
#elif defined(__aarch64__)
  if (isa == Isa::neon) return row_ops_neon();
#endif
  (void)isa;
  return row_ops_portable();
}

}  // namespace moetier::cpu
