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
    case TensorType::q2_k:
      return q2_k;
    case TensorType::q3_k:
      return q3_k;
    case TensorType::iq2_xxs:
      return iq2_xxs;
    case TensorType::iq2_xs:
      return iq2_xs;
    case TensorType::iq2_s:
      return iq2_s;
    case TensorType::iq3_xxs:
      return iq3_xxs;
    case TensorType::iq3_s:
      return iq3_s;
    case TensorType::iq1_s:
      return iq1_s;
    case TensorType::iq1_m:
      return iq1_m;
    case TensorType::iq4_xs:
      return iq4_xs;
    case TensorType::tq1_0:
      return tq1_0;
    case TensorType::tq2_0:
      return tq2_0;
    case TensorType::nvfp4:
      return nvfp4;
    default:
      return nullptr;
  }
}

namespace {

/// The AVX2 unit's table: with AVX-VNNI where this processor has it.
const DotTable& avx2_table() {
  return has_avx_vnni() ? *avxvnni_dots() : *avx2_dots();
}

}  // namespace

const DotTable& eight_row_dots() {
  static const DotTable& table = isa_available(Isa::avx512) ? *avx512vl_dots() : avx2_table();
  return table;
}

const DotTable& dot_table(Isa isa) {
  switch (resolve_isa(isa)) {
    case Isa::avx2:
      return avx2_table();
    case Isa::avx512:
      return has_amx_int8() ? *amx_dots() : *avx512_dots();
    case Isa::neon:
      return *neon_dots();
    default:
      return portable_dots();
  }
}

bool has_dot(TensorType type) {
  return portable_dots().of(type) != nullptr;
}

ActivationKind activation_kind(TensorType type) {
  switch (type_info(type).block_length) {
    case 1:
      return ActivationKind::floats;
    case 32:
    case 64:
      return ActivationKind::blocks32;
    default:
      return ActivationKind::blocks256;
  }
}

}  // namespace moetier
