// The AVX2 unit's table with dots that VNNI makes faster. Only for files named *_avxvnni.cpp and dot_vnni_avx512.cpp,
// which each have their own copy.
#pragma once

#include "compute/cpu/dot_blocks_avx2.h"
#include "compute/cpu/dot_k_avx2.h"
#include "compute/cpu/dot_low_bits_avx2.h"
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
    own.q2_k = dot_low_bits<RowQ2K, &DotTable::q2_k>;
    own.q3_k = dot_low_bits<RowQ3K, &DotTable::q3_k>;
    own.iq2_xxs = dot_low_bits<RowIQ2XXS, &DotTable::iq2_xxs>;
    own.iq2_xs = dot_low_bits<RowIQ2XS, &DotTable::iq2_xs>;
    own.iq2_s = dot_low_bits<RowIQ2S, &DotTable::iq2_s>;
    own.iq3_xxs = dot_low_bits<RowIQ3XXS, &DotTable::iq3_xxs>;
    own.iq3_s = dot_low_bits<RowIQ3S, &DotTable::iq3_s>;
    own.iq1_s = dot_low_bits<RowIQ1S, &DotTable::iq1_s>;
    own.iq1_m = dot_low_bits<RowIQ1M, &DotTable::iq1_m>;
    own.iq4_xs = dot_low_bits<RowIQ4XS, &DotTable::iq4_xs>;
    own.tq1_0 = dot_low_bits<RowTQ1, &DotTable::tq1_0>;
    own.tq2_0 = dot_low_bits<RowTQ2, &DotTable::tq2_0>;
    own.nvfp4 = dot64;
    return own;
  }();
  return table;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
