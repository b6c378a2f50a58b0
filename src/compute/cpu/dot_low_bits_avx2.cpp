// AVX2 dots of the types below four bits and their relatives.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_low_bits_avx2.h"

namespace moetier::avx2 {

constinit const DotFn kDotQ2K = dot_low_bits<RowQ2K, &DotTable::q2_k>;
constinit const DotFn kDotQ3K = dot_low_bits<RowQ3K, &DotTable::q3_k>;
constinit const DotFn kDotIQ2XXS = dot_low_bits<RowIQ2XXS, &DotTable::iq2_xxs>;
constinit const DotFn kDotIQ2XS = dot_low_bits<RowIQ2XS, &DotTable::iq2_xs>;
constinit const DotFn kDotIQ2S = dot_low_bits<RowIQ2S, &DotTable::iq2_s>;
constinit const DotFn kDotIQ3XXS = dot_low_bits<RowIQ3XXS, &DotTable::iq3_xxs>;
constinit const DotFn kDotIQ3S = dot_low_bits<RowIQ3S, &DotTable::iq3_s>;
constinit const DotFn kDotIQ1S = dot_low_bits<RowIQ1S, &DotTable::iq1_s>;
constinit const DotFn kDotIQ1M = dot_low_bits<RowIQ1M, &DotTable::iq1_m>;
constinit const DotFn kDotIQ4XS = dot_low_bits<RowIQ4XS, &DotTable::iq4_xs>;
constinit const DotFn kDotTQ1 = dot_low_bits<RowTQ1, &DotTable::tq1_0>;
constinit const DotFn kDotTQ2 = dot_low_bits<RowTQ2, &DotTable::tq2_0>;

}  // namespace moetier::avx2

#endif
