#include "compute/cpu/expert_activation.h"

#include "compute/cpu/isa.h"
#include "compute/cpu/math.h"

namespace moetier::cpu {
namespace {

template <float (*kFunction)(float)>
void activate(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = num::flush(num::flush(kFunction(gate[i])) * up[i]);
}

float silu(float x) {
  return num::silu(x);
}
float gelu(float x) {
  return num::gelu(x);
}
float relu(float x) {
  return num::relu(x);
}

void add_weighted(float weight, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + num::flush(weight * y[i]);
}

}  // namespace

void portable_swiglu_oai(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float activated = num::flush(num::swish_1702(num::at_most(num::kOaiLimit, gate[i])));
    out[i] = num::flush(activated * (num::within(num::kOaiLimit, up[i]) + 1.0f));
  }
}

const ExpertOps& expert_ops(Isa isa) {
  static constexpr ExpertOps portable{activate<silu>, activate<gelu>, activate<relu>, portable_swiglu_oai,
                                      add_weighted};
  isa = resolve_isa(isa);
  if (isa == Isa::neon) return *neon_expert_ops();
  return isa_has_avx2(isa) ? *avx2_expert_ops() : portable;
}

}  // namespace moetier::cpu
