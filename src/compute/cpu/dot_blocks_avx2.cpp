// AVX2 dots of the types with 32 weights in a block, and the unit's table.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_blocks_avx2.h"

namespace moetier {

const DotTable* avx2_dots() {
  using namespace avx2;
  static const DotTable all = [] {
    DotTable table{};
    put_block_dots(table);
    add_k_dots(table), add_low_bit_dots(table), add_nvfp4_dots(table), add_float_dots(table);
    return table;
  }();
  return &all;
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
