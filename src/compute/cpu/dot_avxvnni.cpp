// The AVX2 unit's dots once more, for processors with AVX-VNNI.
#if defined(__AVXVNNI__) && defined(__F16C__)

#include "compute/cpu/dot_blocks_avx2.h"
#include "compute/cpu/dot_k_avx2.h"

namespace moetier {

const DotTable* avxvnni_dots() {
  using namespace avxvnni;
  static const DotTable table = [] {
    DotTable own = *avx2_dots();  // for the types that have no functions here
    own.q8_0 = dot32<Q8_0, &DotTable::q8_0>;
    own.q4_0 = dot32<Q4_0, &DotTable::q4_0>;
    own.q4_1 = dot32<Q4_1, &DotTable::q4_1>;
    own.q5_0 = dot32<Q5_0, &DotTable::q5_0>;
    own.q5_1 = dot32<Q5_1, &DotTable::q5_1>;
    own.iq4_nl = dot32<IQ4_NL, &DotTable::iq4_nl>;
    own.mxfp4 = dot32<MXFP4, &DotTable::mxfp4>;
    own.q4_k = dot256<Q4_K, &DotTable::q4_k>;
    own.q5_k = dot256<Q5_K, &DotTable::q5_k>;
    own.q6_k = dot256<Q6_K, &DotTable::q6_k>;
    return own;
  }();
  return &table;
}

}  // namespace moetier

#else

#include "compute/cpu/dot.h"

namespace moetier {
const DotTable* avxvnni_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
