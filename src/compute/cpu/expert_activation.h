// The activation between an expert's two halves.
#pragma once

#include <cstdint>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier::cpu {

/// out = flush(flush(activation(gate)) * up), for swiglu_oai with the limits and up + 1; out may be gate.
using ExpertActivationFn = void (*)(const float* gate, const float* up, float* out, int64_t n);

/// out = out + flush(weight * y): one pick's part of the weighted sum.
using AddWeightedFn = void (*)(float weight, const float* y, float* out, int64_t n);

struct ExpertOps {
  ExpertActivationFn silu, gelu, relu, swiglu_oai;
  AddWeightedFn add_weighted;

  ExpertActivationFn of(Activation activation) const {
    switch (activation) {
      case Activation::silu:
        return silu;
      case Activation::gelu:
        return gelu;
      case Activation::relu:
        return relu;
      case Activation::swiglu_oai:
        return swiglu_oai;
      case Activation::sigmoid:
      case Activation::identity:
        break;
    }
    return nullptr;  // no activation of experts
  }
};

/// For units without one of their own.
void portable_swiglu_oai(const float* gate, const float* up, float* out, int64_t n);

/// `isa` must be available (Isa::automatic is resolved). All units give the same bits.
const ExpertOps& expert_ops(Isa isa);

/// The units', or nullptr where the compiler has none.
const ExpertOps* avx2_expert_ops();
const ExpertOps* neon_expert_ops();

}  // namespace moetier::cpu
