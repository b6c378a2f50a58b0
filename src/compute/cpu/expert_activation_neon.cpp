#include "compute/cpu/expert_activation.h"

#if defined(__aarch64__)

#include "compute/cpu/math_neon.h"

namespace moetier::cpu {
namespace {

template <Activation kActivation>
MOETIER_INLINE float32x4_t activated4(float32x4_t g) {
  if constexpr (kActivation == Activation::silu) return num::silu4(g);
  if constexpr (kActivation == Activation::gelu) return num::gelu4(g);
  return num::relu4(g);
}

template <Activation kActivation>
MOETIER_INLINE float activated(float g) {
  if constexpr (kActivation == Activation::silu) return num::silu(g);
  if constexpr (kActivation == Activation::gelu) return num::gelu(g);
  return num::relu(g);
}

template <Activation kActivation>
void activate(const float* gate, const float* up, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t h = num::flush4(activated4<kActivation>(vld1q_f32(gate + i)));
    vst1q_f32(out + i, num::flush4(vmulq_f32(h, vld1q_f32(up + i))));
  }
  for (; i < n; ++i) out[i] = num::flush(num::flush(activated<kActivation>(gate[i])) * up[i]);
}

void add_weighted(float weight, const float* y, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t product = num::flush4(vmulq_n_f32(vld1q_f32(y + i), weight));
    vst1q_f32(out + i, vaddq_f32(vld1q_f32(out + i), product));
  }
  for (; i < n; ++i) out[i] = out[i] + num::flush(weight * y[i]);
}

}  // namespace

const ExpertOps* neon_expert_ops() {
  static constexpr ExpertOps ops{activate<Activation::silu>, activate<Activation::gelu>, activate<Activation::relu>,
                                 portable_swiglu_oai, add_weighted};
  return &ops;
}

}  // namespace moetier::cpu

#else

namespace moetier::cpu {
const ExpertOps* neon_expert_ops() {
  return nullptr;
}
}  // namespace moetier::cpu

#endif
