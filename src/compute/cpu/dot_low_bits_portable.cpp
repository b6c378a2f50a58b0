// The portable dots of the types below four bits, their relatives and NVFP4.
#include "compute/cpu/dot_portable.h"
#include "compute/cpu/math.h"
#include "quant/unpack.h"

namespace moetier::portable {
namespace {

// --- 256 weights in a block, a scale for each 16 ---

template <typename Block>
void decode(const Block& block, Unpacked256& out) {
  unpack(block, out);
}

template <typename Block>
float term(const Unpacked256& w, const Codes256& x) {
  int total = 0;
  for (int k = 0; k < 16; ++k) {
    int sum = 0;
    for (int i = 16 * k; i < 16 * k + 16; ++i) sum += w.q[i] * x.codes[i];
    total += w.scales[k] * sum;
  }
  const float scaled = num::flush(num::flush(w.d) * x.scale) * static_cast<float>(total);
  if constexpr (std::is_same_v<Block, BlockQ2_K>) {
    int mins = 0;
    for (int k = 0; k < 16; ++k) mins += w.mins[k] * x.sums16[k];
    return scaled - num::flush(num::flush(w.dmin) * x.scale) * static_cast<float>(mins);
  } else {
    return scaled;
  }
}

template <typename Block>
constexpr DotFn kDot = dot<Block, Unpacked256, Codes256, decode<Block>, term<Block>>;

// --- NVFP4: 64 weights and two blocks of activations ---

struct Decoded64 {
  float d[4];
  int8_t q[64];
};

struct Codes64 {
  Codes32 half[2];
};
static_assert(sizeof(Codes64) == 2 * sizeof(Codes32));

void decode64(const BlockNVFP4& block, Decoded64& out) {
  for (int g = 0; g < 4; ++g) {
    out.d[g] = ue4m3_half(block.scales[g]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t byte = block.qs[8 * g + j];
      out.q[16 * g + j] = kFp4Values[byte & 15];
      out.q[16 * g + j + 8] = kFp4Values[byte >> 4];
    }
  }
}

float term64(const Decoded64& w, const Codes64& x) {
  float part[4];
  for (int g = 0; g < 4; ++g) {
    const Codes32& half = x.half[g / 2];
    int sum = 0;
    for (int j = 0; j < 16; ++j) sum += w.q[16 * g + j] * half.codes[16 * (g % 2) + j];
    part[g] = num::flush(w.d[g] * half.scale) * static_cast<float>(sum);
  }
  return (part[0] + part[1]) + (part[2] + part[3]);
}

}  // namespace

void add_low_bit_dots(DotTable& table) {
  table.q2_k = kDot<BlockQ2_K>;
  table.q3_k = kDot<BlockQ3_K>;
  table.iq2_xxs = kDot<BlockIQ2_XXS>;
  table.iq2_xs = kDot<BlockIQ2_XS>;
  table.iq2_s = kDot<BlockIQ2_S>;
  table.iq3_xxs = kDot<BlockIQ3_XXS>;
  table.iq3_s = kDot<BlockIQ3_S>;
  table.iq1_s = kDot<BlockIQ1_S>;
  table.iq1_m = kDot<BlockIQ1_M>;
  table.iq4_xs = kDot<BlockIQ4_XS>;
  table.tq1_0 = kDot<BlockTQ1_0>;
  table.tq2_0 = kDot<BlockTQ2_0>;
  table.nvfp4 = dot<BlockNVFP4, Decoded64, Codes64, decode64, term64>;
}

}  // namespace moetier::portable
