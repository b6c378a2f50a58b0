// The activation between an expert's two halves.
#pragma once

#include <cstdint>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

/// out = flush(flush(activation(gate)) * up); out may be gate.
using ExpertActivationFn = void (*)(const float* gate, const float* up, float* out, int64_t n);

/// out = out + flush(weight * y): one pick's part of the weighted sum.
using AddWeightedFn = void (*)(float weight, const float* y, float* out, int64_t n);

struct ExpertOps {
  ExpertActivationFn silu, gelu;
  AddWeightedFn add_weighted;

  ExpertActivationFn of(Activation activation) const { return activation == Activation::silu ? silu : gelu; }
};

/// `isa` must be available (Isa::automatic is resolved). All units give the same bits.
const ExpertOps& expert_ops(Isa isa);

/// The units', or nullptr where the compiler has none.
const ExpertOps* avx2_expert_ops();
const ExpertOps* neon_expert_ops();

}  // namespace moetier::cpu
