// The NEON dots for processors with smmla.
#if defined(__ARM_FEATURE_MATMUL_INT8)

#include "compute/cpu/dot_table_neon.h"

namespace moetier::neon {

const DotTable& i8mm_dots() {
  static const DotTable table = make_dot_table<DotProducts, MatrixProducts>();
  return table;
}

}  // namespace moetier::neon

#endif
