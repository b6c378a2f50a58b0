// A NEON unit's table from its engines. Only for the units dot_neon*.cpp.
#pragma once

#include "compute/cpu/dot_blocks_neon.h"
#include "compute/cpu/dot_k_neon.h"
#include "compute/cpu/dot_low_bits_neon.h"

namespace moetier::neon {

/// One: the engine for one activation row, Many: for more.
template <typename One, typename Many>
MOETIER_INLINE DotTable make_dot_table() {
  DotTable table = portable_dots();
  table.f32 = kDotF32;
  table.f16 = kDotF16;
  table.bf16 = kDotBF16;
  table.q8_0 = dot32<Q8_0, One, Many, &DotTable::q8_0>;
  table.q4_0 = dot32<Q4_0, One, Many, &DotTable::q4_0>;
  table.q4_1 = dot32<Q4_1, One, Many, &DotTable::q4_1>;
  table.q5_0 = dot32<Q5_0, One, Many, &DotTable::q5_0>;
  table.q5_1 = dot32<Q5_1, One, Many, &DotTable::q5_1>;
  table.iq4_nl = dot32<IQ4_NL, One, Many, &DotTable::iq4_nl>;
  table.mxfp4 = dot32<MXFP4, One, Many, &DotTable::mxfp4>;
  table.q4_k = dot256<Q4_K, One, Many, &DotTable::q4_k>;
  table.q5_k = dot256<Q5_K, One, Many, &DotTable::q5_k>;
  table.q6_k = dot256<Q6_K, One, Many, &DotTable::q6_k>;
  table.q2_k = low_bit_dot<BlockQ2_K, One, Many, &DotTable::q2_k>;
  table.q3_k = low_bit_dot<BlockQ3_K, One, Many, &DotTable::q3_k>;
  table.iq2_xxs = low_bit_dot<BlockIQ2_XXS, One, Many, &DotTable::iq2_xxs>;
  table.iq2_xs = low_bit_dot<BlockIQ2_XS, One, Many, &DotTable::iq2_xs>;
  table.iq2_s = low_bit_dot<BlockIQ2_S, One, Many, &DotTable::iq2_s>;
  table.iq3_xxs = low_bit_dot<BlockIQ3_XXS, One, Many, &DotTable::iq3_xxs>;
  table.iq3_s = low_bit_dot<BlockIQ3_S, One, Many, &DotTable::iq3_s>;
  table.iq1_s = low_bit_dot<BlockIQ1_S, One, Many, &DotTable::iq1_s>;
  table.iq1_m = low_bit_dot<BlockIQ1_M, One, Many, &DotTable::iq1_m>;
  table.iq4_xs = low_bit_dot<BlockIQ4_XS, One, Many, &DotTable::iq4_xs>;
  table.tq1_0 = low_bit_dot<BlockTQ1_0, One, Many, &DotTable::tq1_0>;
  table.tq2_0 = low_bit_dot<BlockTQ2_0, One, Many, &DotTable::tq2_0>;
  table.nvfp4 = nvfp4_dot<One, Many>;
  return table;
}

/// The tables in files of their own; only for machines that can run them.
const DotTable& dotprod_dots();
const DotTable& i8mm_dots();

}  // namespace moetier::neon
