// A NEON unit's table from its engines. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_blocks_neon.h"
#include "compute/cpu/dot_k_neon.h"

namespace moetier::neon {

/// One: the engine for one activation row, Many: for more.
template <typename One, typename Many>
MOETIER_INLINE DotTable make_dot_table() {
  return {
      .f32 = kDotF32,
      .f16 = kDotF16,
      .bf16 = kDotBF16,
      .q8_0 = dot32<Q8_0, One, Many, &DotTable::q8_0>,
      .q4_0 = dot32<Q4_0, One, Many, &DotTable::q4_0>,
      .q4_1 = dot32<Q4_1, One, Many, &DotTable::q4_1>,
      .q5_0 = dot32<Q5_0, One, Many, &DotTable::q5_0>,
      .q5_1 = dot32<Q5_1, One, Many, &DotTable::q5_1>,
      .iq4_nl = dot32<IQ4_NL, One, Many, &DotTable::iq4_nl>,
      .mxfp4 = dot32<MXFP4, One, Many, &DotTable::mxfp4>,
      .q4_k = dot256<Q4_K, One, Many, &DotTable::q4_k>,
      .q5_k = dot256<Q5_K, One, Many, &DotTable::q5_k>,
      .q6_k = dot256<Q6_K, One, Many, &DotTable::q6_k>,
  };
}

/// The tables in files of their own; only for machines that can run them.
const DotTable& dotprod_dots();
const DotTable& i8mm_dots();

}  // namespace moetier::neon
