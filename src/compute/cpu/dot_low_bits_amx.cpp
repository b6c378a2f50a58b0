// AMX dots of the types below four bits and their relatives.
#if defined(__x86_64__)

#include "compute/cpu/low_bit_planes_avx512.h"
#include "compute/cpu/super_blocks_amx.h"

namespace moetier::amx {

void add_low_bit_dots(DotTable& table) {
  table.q2_k = amx::dot256<Q2_K, &DotTable::q2_k>;
  table.q3_k = amx::dot256<Q3_K, &DotTable::q3_k>;
  table.iq2_xxs = amx::dot256<IQ2_XXS, &DotTable::iq2_xxs>;
  table.iq2_xs = amx::dot256<IQ2_XS, &DotTable::iq2_xs>;
  table.iq2_s = amx::dot256<IQ2_S, &DotTable::iq2_s>;
  table.iq3_xxs = amx::dot256<IQ3_XXS, &DotTable::iq3_xxs>;
  table.iq3_s = amx::dot256<IQ3_S, &DotTable::iq3_s>;
  table.iq1_s = amx::dot256<IQ1_S, &DotTable::iq1_s>;
  table.iq1_m = amx::dot256<IQ1_M, &DotTable::iq1_m>;
  table.iq4_xs = amx::dot256<IQ4_XS, &DotTable::iq4_xs>;
  table.tq1_0 = amx::dot256<TQ1_0, &DotTable::tq1_0>;
  table.tq2_0 = amx::dot256<TQ2_0, &DotTable::tq2_0>;
}

}  // namespace moetier::amx

#endif
