// AVX2 dots of NVFP4.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_nvfp4_avx2.h"

namespace moetier::avx2 {

void add_nvfp4_dots(DotTable& table) {
  table.nvfp4 = dot64;
}

}  // namespace moetier::avx2

#endif
