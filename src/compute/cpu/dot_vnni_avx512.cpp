// The AVX2 unit's dots once more, with VNNI as AVX-512 has it for vectors of 256 bits: for all processors of the
// AVX-512 unit, many of which lack AVX-VNNI.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)

#include "compute/cpu/dot_vnni_avx2.h"

namespace moetier {
const DotTable* avx512vl_dots() {
  return &avx512vl::vnni_dots();
}
}  // namespace moetier

#else

#include "compute/cpu/dot.h"

namespace moetier {
const DotTable* avx512vl_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
