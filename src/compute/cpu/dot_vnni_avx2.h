// The AVX2 unit's table with dots that VNNI makes faster. Only for files named *_avxvnni.cpp and dot_vnni_avx512.cpp,
// which each have their own copy.
#pragma once

#include "compute/cpu/dot_blocks_avx2.h"
#include "compute/cpu/dot_k_avx2.h"
#include "compute/cpu/dot_nvfp4_avx2.h"

namespace moetier::MOETIER_AVX2_UNIT {
namespace {

const DotTable& vnni_dots() {
  static const DotTable table = [] {
    DotTable own = *avx2_dots();  // for the types that have no functions here
    own.q8_0 = dot32<Q8_0, &DotTable::q8_0>;
    own.q4_0 = dot32<Q4_0, &DotTable::q4_0>;
    own.q4_1 = dot32<Q4_1, &DotTable::q4_1>;
    own.q5_0 = dot32<Q5_0, &DotTable::q5_0>;
    own.q5_1 = dot32<Q5_1, &DotTable::q5_1>;
    own.iq4_nl = dot32<IQ4_NL, &DotTable::iq4_nl>;
    own.mxfp4 = dot32<MXFP4, &DotTable::mxfp4>;
    own.q4_k = dot256<Q4_K, &DotTable::q4_k>;
    own.q5_k = dot256<Q5_K, &DotTable::q5_k>;
    own.q6_k = dot256<Q6_K, &DotTable::q6_k>;
    own.nvfp4 = dot64;
    return own;
  }();
  return table;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
