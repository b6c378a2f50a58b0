#include "compute/cpu/dot.h"

#include "compute/cpu/isa.h"

namespace moetier {

DotFn DotTable::of(TensorType type) const {
  switch (type) {
    case TensorType::f32:
      return f32;
    case TensorType::f16:
      return f16;
    case TensorType::bf16:
      return bf16;
    case TensorType::q8_0:
      return q8_0;
    case TensorType::q4_0:
      return q4_0;
    case TensorType::q4_1:
      return q4_1;
    case TensorType::q5_0:
      return q5_0;
    case TensorType::q5_1:
      return q5_1;
    case TensorType::iq4_nl:
      return iq4_nl;
    case TensorType::mxfp4:
      return mxfp4;
    case TensorType::q4_k:
      return q4_k;
    case TensorType::q5_k:
      return q5_k;
    case TensorType::q6_k:
      return q6_k;
    default:
      return nullptr;
  }
}

const DotTable& dot_table(Isa isa) {
  return resolve_isa(isa) == Isa::avx2 ? *avx2_dots() : portable_dots();
}

bool has_dot(TensorType type) {
  return portable_dots().of(type) != nullptr;
}

ActivationKind activation_kind(TensorType type) {
  switch (type_info(type).block_length) {
    case 1:
      return ActivationKind::floats;
    case 32:
      return ActivationKind::blocks32;
    default:
      return ActivationKind::blocks256;
  }
}

}  // namespace moetier
