#include "compute/cpu/recurrent_ops.h"

#if defined(__aarch64__)

#include "compute/cpu/math_neon.h"
#include "compute/cpu/recurrent_rows.h"

namespace moetier::cpu {
namespace {

struct Unit {
  using V = float32x4_t;
  static constexpr int kLanes = 4;
  MOETIER_INLINE static float32x4_t load(const float* at) { return vld1q_f32(at); }
  MOETIER_INLINE static void store(float* at, float32x4_t v) { vst1q_f32(at, v); }
  MOETIER_INLINE static float32x4_t set(float x) { return vdupq_n_f32(x); }
  MOETIER_INLINE static float32x4_t add(float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }
  MOETIER_INLINE static float32x4_t mul(float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }
  MOETIER_INLINE static float32x4_t silu(float32x4_t x) { return num::silu4(x); }
  MOETIER_INLINE static float tree16(const float32x4_t* p) {
    num::Partials sums(0.0f);
    for (int i = 0; i < 4; ++i) sums.p[i] = p[i];
    return sums.tree();
  }
};

}  // namespace

const RecurrentOps& recurrent_ops_neon() {
  static constexpr RecurrentOps kOps{conv_row<Unit>, delta_rows<Unit>, scan_rows<Unit>};
  return kOps;
}

}  // namespace moetier::cpu

#endif
