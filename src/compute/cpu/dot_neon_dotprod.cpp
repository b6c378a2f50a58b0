// The NEON dots for processors with sdot.
#if defined(__ARM_FEATURE_DOTPROD)

#include "compute/cpu/dot_table_neon.h"

namespace moetier::neon {

const DotTable& dotprod_dots() {
  static const DotTable table = make_dot_table<DotProducts, DotProducts>();
  return table;
}

}  // namespace moetier::neon

#endif
