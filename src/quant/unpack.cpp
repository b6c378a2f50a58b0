#include "quant/unpack.h"

#include <algorithm>

#include "quant/grids.h"
#include "quant/half.h"

namespace moetier {
namespace {

/// The 2-bit code of weight i in planes.
int plane_code(const uint8_t* qs, int i) {
  return qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

int nibble(const uint8_t* bytes, int i) {
  return bytes[i / 2] >> (4 * (i % 2)) & 15;
}

/// 2 * nibble + 1: the odd scales of the IQ types.
int8_t odd(uint32_t value) {
  return static_cast<int8_t>(2 * value + 1);
}

/// A grid's row of 8 magnitudes to codes, negative where `signs` says.
void put_octet(uint64_t row, uint8_t signs, int8_t* q) {
  for (int j = 0; j < 8; ++j) {
    const int magnitude = static_cast<int>(row >> (8 * j) & 0xff);
    q[j] = static_cast<int8_t>((signs >> j & 1) != 0 ? -magnitude : magnitude);
  }
}

/// Two rows of 4 as one of 8.
uint64_t pair_of(uint32_t first, uint32_t second) {
  return first | uint64_t{second} << 32;
}

/// IQ1: eighths.
void put_shifted(uint64_t row, bool down, int8_t* q) {
  for (int j = 0; j < 8; ++j) {
    q[j] = static_cast<int8_t>(static_cast<int>(row >> (8 * j) & 0xff) - 8 + (down ? -1 : 1));
  }
}

uint8_t seven_signs(uint32_t word, int octet) {
  return with_parity(word >> (7 * octet) & 0x7f);
}

}  // namespace

void unpack(const BlockQ2_K& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  out.dmin = f16_to_f32(b.dmin);
  for (int k = 0; k < 16; ++k) {
    out.scales[k] = static_cast<int8_t>(b.scales[k] & 15);
    out.mins[k] = b.scales[k] >> 4;
  }
  for (int i = 0; i < 256; ++i) out.q[i] = static_cast<int8_t>(plane_code(b.qs, i));
}

void unpack(const BlockQ3_K& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  uint8_t scales[16];
  unpack_q3_scales(b.scales, scales);
  for (int k = 0; k < 16; ++k) out.scales[k] = static_cast<int8_t>(scales[k] - 32);
  for (int i = 0; i < 256; ++i) {
    const bool high = (b.hmask[i % 32] >> (i / 32) & 1) != 0;
    out.q[i] = static_cast<int8_t>(plane_code(b.qs, i) - (high ? 0 : 4));
  }
}

void unpack(const BlockIQ2_XXS& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d) * 0.125f;
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = b.groups[s].signs;
    out.scales[2 * s] = out.scales[2 * s + 1] = odd(word >> 28);
    for (int l = 0; l < 4; ++l) {
      put_octet(grids().iq2_xxs[b.groups[s].index[l]], seven_signs(word, l), out.q + 32 * s + 8 * l);
    }
  }
}

void unpack(const BlockIQ2_XS& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d) * 0.125f;
  for (int k = 0; k < 16; ++k) out.scales[k] = odd(static_cast<uint32_t>(nibble(b.scales, k)));
  for (int n = 0; n < 32; ++n) {
    const uint32_t word = b.qs[n];
    put_octet(grids().iq2_xs[word & 511], with_parity(word >> 9), out.q + 8 * n);
  }
}

void unpack(const BlockIQ2_S& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d) * 0.125f;
  for (int k = 0; k < 16; ++k) out.scales[k] = odd(static_cast<uint32_t>(nibble(b.scales, k)));
  for (int n = 0; n < 32; ++n) {
    const int high = b.high[n / 4] >> (2 * (n % 4)) & 3;
    put_octet(grids().iq2_s[b.index[n] | high << 8], b.signs[n], out.q + 8 * n);
  }
}

void unpack(const BlockIQ3_XXS& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d) * 0.25f;
  const uint32_t* grid = grids().iq3_xxs;
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = b.signs[s];
    out.scales[2 * s] = out.scales[2 * s + 1] = odd(word >> 28);
    for (int l = 0; l < 4; ++l) {
      const uint8_t* index = b.index + 8 * s + 2 * l;
      put_octet(pair_of(grid[index[0]], grid[index[1]]), seven_signs(word, l), out.q + 32 * s + 8 * l);
    }
  }
}

void unpack(const BlockIQ3_S& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  const uint32_t* grid = grids().iq3_s;
  for (int s = 0; s < 8; ++s) {
    out.scales[2 * s] = out.scales[2 * s + 1] = odd(static_cast<uint32_t>(nibble(b.scales, s)));
    for (int l = 0; l < 4; ++l) {
      const auto row = [&](int t) { return grid[b.index[8 * s + t] | (b.high[s] >> t & 1) << 8]; };
      put_octet(pair_of(row(2 * l), row(2 * l + 1)), b.signs[4 * s + l], out.q + 32 * s + 8 * l);
    }
  }
}

void unpack(const BlockIQ1_S& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d) * 0.125f;
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = b.high[s];
    out.scales[2 * s] = out.scales[2 * s + 1] = odd(word >> 12 & 7);
    for (int l = 0; l < 4; ++l) {
      const uint32_t row = b.index[4 * s + l] | (word >> (3 * l) & 7) << 8;
      put_shifted(grids().iq1[row], word >> 15 != 0, out.q + 32 * s + 8 * l);
    }
  }
}

void unpack(const BlockIQ1_M& b, Unpacked256& out) {
  out.d = f16_to_f32(iq1_m_scale(b)) * 0.125f;
  for (int k = 0; k < 16; ++k) out.scales[k] = odd(static_cast<uint32_t>(b.scales[k / 4]) >> (3 * (k % 4)) & 7);
  for (int n = 0; n < 32; ++n) {
    const int high = nibble(b.high, n);
    put_shifted(grids().iq1[b.index[n] | (high & 7) << 8], (high & 8) != 0, out.q + 8 * n);
  }
}

void unpack(const BlockIQ4_XS& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  for (int s = 0; s < 8; ++s) {
    const int scale = nibble(b.scales_low, s) | (b.scales_high >> (2 * s) & 3) << 4;
    out.scales[2 * s] = out.scales[2 * s + 1] = static_cast<int8_t>(scale - 32);
    for (int j = 0; j < 16; ++j) {
      const uint8_t byte = b.qs[16 * s + j];
      out.q[32 * s + j] = kIq4Values[byte & 15];
      out.q[32 * s + j + 16] = kIq4Values[byte >> 4];
    }
  }
}

void unpack(const BlockTQ1_0& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  std::fill_n(out.scales, 16, int8_t{1});
  const auto put = [&](const uint8_t* bytes, int count, int digits, int8_t* q) {
    for (int n = 0; n < digits; ++n) {
      for (int m = 0; m < count; ++m) q[n * count + m] = static_cast<int8_t>(trit(bytes[m], n) - 1);
    }
  };
  put(b.qs, 32, 5, out.q);
  put(b.qs + 32, 16, 5, out.q + 160);
  put(b.qh, 4, 4, out.q + 240);
}

void unpack(const BlockTQ2_0& b, Unpacked256& out) {
  out.d = f16_to_f32(b.d);
  std::fill_n(out.scales, 16, int8_t{1});
  for (int i = 0; i < 256; ++i) out.q[i] = static_cast<int8_t>(plane_code(b.qs, i) - 1);
}

}  // namespace moetier
