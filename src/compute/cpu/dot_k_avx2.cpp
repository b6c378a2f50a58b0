// AVX2 dots of the K types.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_k_avx2.h"

namespace moetier::avx2 {

void add_k_dots(DotTable& table) {
  put_k_dots(table);
}

}  // namespace moetier::avx2

#endif
