// The source of the AVX-512 dots on a processor without AVX-512.
#pragma once

#include "compute/cpu/dot.h"

namespace moetier {

/// The table that needs no more than AVX2, or nullptr where SIMDe was not there when the tests were built.
const DotTable* simde_avx512_dots();

}  // namespace moetier
