// Super-blocks as integers: what decoders and the portable kernels share.
#pragma once

#include "quant/low_bit_blocks.h"

namespace moetier {

/// 256 weights: y_i = (d * scales[k]) * q[i] - (dmin * mins[k]), k = i / 16; dmin and mins only for Q2_K. `d` is the
/// block's own, times the power of two that makes the codes whole: 1/8 for IQ1 and IQ2, 1/4 for IQ3_XXS.
struct Unpacked256 {
  float d, dmin;
  int8_t q[256];
  int8_t scales[16];
  uint8_t mins[16];
};

/// IQ2: codes +-8, 25, 43 and odd scales to 31; IQ3: codes to +-62 (15 in IQ3_S), odd scales to 31; IQ1: codes -9 to 9
/// (eight times a grid's element, +-1), odd scales to 15; ternary types: scales 1.
void unpack(const BlockQ2_K& block, Unpacked256& out);
void unpack(const BlockQ3_K& block, Unpacked256& out);
void unpack(const BlockIQ2_XXS& block, Unpacked256& out);
void unpack(const BlockIQ2_XS& block, Unpacked256& out);
void unpack(const BlockIQ2_S& block, Unpacked256& out);
void unpack(const BlockIQ3_XXS& block, Unpacked256& out);
void unpack(const BlockIQ3_S& block, Unpacked256& out);
void unpack(const BlockIQ1_S& block, Unpacked256& out);
void unpack(const BlockIQ1_M& block, Unpacked256& out);
void unpack(const BlockIQ4_XS& block, Unpacked256& out);
void unpack(const BlockTQ1_0& block, Unpacked256& out);
void unpack(const BlockTQ2_0& block, Unpacked256& out);

}  // namespace moetier
