// The AVX-512 dots by SIMDe, for the tests of dots. Compiled for AVX2 where SIMDe is installed.
#include "compute/dot_simde.h"

#if defined(MOETIER_HAS_SIMDE) && defined(__AVX2__) && defined(__F16C__) && !defined(__AVX512F__)

#include "compute/simde_avx512.h"

// What the units include, before their own names are changed.
#include <limits>
#include <type_traits>

#include "compute/cpu/activation_codes.h"
#include "compute/cpu/float_dot_avx2.h"
#include "compute/cpu/math.h"
#include "quant/blocks.h"
#include "quant/grids.h"
#include "quant/low_bit_blocks.h"

#define __AVX512VNNI__ 1
#define __AVX512BW__ 1
#define avx512 simde_avx512
#define avx512_dots simde_avx512_dots
#include "compute/cpu/dot_blocks_avx512.cpp"
#include "compute/cpu/dot_float_avx512.cpp"
#include "compute/cpu/dot_k_avx512.cpp"
#include "compute/cpu/dot_low_bits_avx512.cpp"
#include "compute/cpu/dot_nvfp4_avx512.cpp"
#include "compute/cpu/dot_planes_avx512.cpp"

#else

namespace moetier {
const DotTable* simde_avx512_dots() {
  return nullptr;
}
}  // namespace moetier

#endif
