// AVX2 dots of the types with 32 weights in a block, and the unit's table.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_blocks_avx2.h"

namespace moetier {

const DotTable* avx2_dots() {
  using namespace avx2;
  static const DotTable table{
      .f32 = kDotF32,
      .f16 = kDotF16,
      .bf16 = kDotBF16,
      .q8_0 = dot32<Q8_0, &DotTable::q8_0>,
      .q4_0 = dot32<Q4_0, &DotTable::q4_0>,
      .q4_1 = dot32<Q4_1, &DotTable::q4_1>,
      .q5_0 = dot32<Q5_0, &DotTable::q5_0>,
      .q5_1 = dot32<Q5_1, &DotTable::q5_1>,
      .iq4_nl = dot32<IQ4_NL, &DotTable::iq4_nl>,
      .mxfp4 = dot32<MXFP4, &DotTable::mxfp4>,
      .q4_k = kDotQ4K,
      .q5_k = kDotQ5K,
      .q6_k = kDotQ6K,
      .q2_k = kDotQ2K,
      .q3_k = kDotQ3K,
      .iq2_xxs = kDotIQ2XXS,
      .iq2_xs = kDotIQ2XS,
      .iq2_s = kDotIQ2S,
      .iq3_xxs = kDotIQ3XXS,
      .iq3_s = kDotIQ3S,
      .iq1_s = kDotIQ1S,
      .iq1_m = kDotIQ1M,
      .iq4_xs = kDotIQ4XS,
      .tq1_0 = kDotTQ1,
      .tq2_0 = kDotTQ2,
      .nvfp4 = kDotNVFP4,
  };
  return &table;
}

}  // namespace moetier

#else

#include "compute/cpu/dot.h"

namespace moetier {
const DotTable* avx2_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
