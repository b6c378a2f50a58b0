// AMX dots of the types below four bits and their relatives.
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include "compute/cpu/low_bit_planes_avx512.h"
#include "compute/cpu/super_blocks_amx.h"

namespace moetier::amx {

constinit const DotFn kDotQ2K = amx::dot256<Q2_K, &DotTable::q2_k>;
constinit const DotFn kDotQ3K = amx::dot256<Q3_K, &DotTable::q3_k>;
constinit const DotFn kDotIQ2XXS = amx::dot256<IQ2_XXS, &DotTable::iq2_xxs>;
constinit const DotFn kDotIQ2XS = amx::dot256<IQ2_XS, &DotTable::iq2_xs>;
constinit const DotFn kDotIQ2S = amx::dot256<IQ2_S, &DotTable::iq2_s>;
constinit const DotFn kDotIQ3XXS = amx::dot256<IQ3_XXS, &DotTable::iq3_xxs>;
constinit const DotFn kDotIQ3S = amx::dot256<IQ3_S, &DotTable::iq3_s>;
constinit const DotFn kDotIQ1S = amx::dot256<IQ1_S, &DotTable::iq1_s>;
constinit const DotFn kDotIQ1M = amx::dot256<IQ1_M, &DotTable::iq1_m>;
constinit const DotFn kDotIQ4XS = amx::dot256<IQ4_XS, &DotTable::iq4_xs>;
constinit const DotFn kDotTQ1 = amx::dot256<TQ1_0, &DotTable::tq1_0>;
constinit const DotFn kDotTQ2 = amx::dot256<TQ2_0, &DotTable::tq2_0>;

}  // namespace moetier::amx

#endif
