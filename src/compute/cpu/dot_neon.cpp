// The NEON dots for every ARM processor of 64 bits, and the choice among the unit's tables.
#include "compute/cpu/dot.h"

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "compute/cpu/dot_table_neon.h"

namespace moetier {

const DotTable* neon_dots(NeonDots variant) {
  static const DotTable base = neon::make_dot_table<neon::WideningProducts, neon::WideningProducts>();
  const bool has_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool has_i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  switch (variant) {
    case NeonDots::base:
      return &base;
    case NeonDots::dotprod:
      return has_dotprod ? &neon::dotprod_dots() : nullptr;
    default:
      return has_dotprod && has_i8mm ? &neon::i8mm_dots() : nullptr;
  }
}

const DotTable* neon_dots() {
  for (const NeonDots variant : {NeonDots::i8mm, NeonDots::dotprod}) {
    if (const DotTable* dots = neon_dots(variant); dots != nullptr) return dots;
  }
  return neon_dots(NeonDots::base);
}

}  // namespace moetier

#else

namespace moetier {
const DotTable* neon_dots(NeonDots) {
  return nullptr;
}
const DotTable* neon_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
