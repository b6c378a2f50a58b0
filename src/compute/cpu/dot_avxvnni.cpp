// The AVX2 unit's dots once more, for processors with AVX-VNNI.
#if defined(__AVXVNNI__) && defined(__F16C__)

#include "compute/cpu/dot_vnni_avx2.h"

namespace moetier {
const DotTable* avxvnni_dots() {
  return &avxvnni::vnni_dots();
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
