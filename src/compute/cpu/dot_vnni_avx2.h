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
  static const DotTable all = [] {
    DotTable table = *avx2_dots();  // for the types that have no functions here
    put_block_dots(table), put_k_dots(table), put_low_bit_dots(table);
    table.nvfp4 = dot64;
    return table;
  }();
  return all;
}

}  // namespace
}  // namespace moetier::MOETIER_AVX2_UNIT
