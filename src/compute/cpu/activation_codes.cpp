#include "compute/cpu/activation_codes.h"

#include <limits>

#include "compute/cpu/isa.h"
#include "compute/cpu/math.h"

namespace moetier {
namespace {

constexpr float kOver127 = 1.0f / 127.0f;

/// Largest magnitude of n columns; a NaN if one of them is.
float largest_magnitude(const float* x, int n) {
  float largest = 0.0f;
  bool numbers = true;
  for (int i = 0; i < n; ++i) {
    largest = num::max(x[i] < 0.0f ? -x[i] : x[i], largest);
    numbers = numbers && x[i] == x[i];
  }
  return numbers ? largest : std::numeric_limits<float>::quiet_NaN();
}

/// Codes of n columns; returns the scale.
float encode_block(const float* x, int8_t* codes, int n) {
  const float largest = largest_magnitude(x, n);
  if (!(largest >= num::kFlush)) {
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return num::flush(largest);
  }
  const float r = 127.0f * num::recip(largest);
  for (int i = 0; i < n; ++i) {
    // The bounds are integers, so clamping before rounding gives the same code.
    const float clamped = num::max(num::min(x[i] * r, 127.0f), -127.0f);
    codes[i] = static_cast<int8_t>((clamped + num::kRound) - num::kRound);
  }
  return largest * kOver127;
}

int sum_codes(const int8_t* codes, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += codes[i];
  return sum;
}

void encode32(const float* x, Codes32* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 32; ++b) {
    out[b].scale = num::round_scale(encode_block(x + b * 32, out[b].codes, 32));
    out[b].sum = sum_codes(out[b].codes, 32);
  }
}

void encode256(const float* x, Codes256* out, int64_t columns) {
  for (int64_t b = 0; b < columns / 256; ++b) {
    Codes256& block = out[b];
    block.scale = encode_block(x + b * 256, block.codes, 256);
    for (int k = 0; k < 16; ++k) block.sums16[k] = static_cast<int16_t>(sum_codes(block.codes + 16 * k, 16));
    for (int k = 0; k < 8; ++k) block.sums32[k] = static_cast<int16_t>(block.sums16[2 * k] + block.sums16[2 * k + 1]);
  }
}

}  // namespace

const ActivationEncoders& activation_encoders(Isa isa) {
  static constexpr ActivationEncoders portable{encode32, encode256};
  isa = resolve_isa(isa);
  if (isa == Isa::neon) return *neon_activation_encoders();
  return isa_has_avx2(isa) ? *avx2_activation_encoders() : portable;
}

void encode_activations(const ActivationEncoders& encoders, ActivationKind kind, const float* x, std::byte* out,
                        int64_t columns) {
  if (kind == ActivationKind::blocks32) {
    encoders.blocks32(x, reinterpret_cast<Codes32*>(out), columns);
  } else {
    encoders.blocks256(x, reinterpret_cast<Codes256*>(out), columns);
  }
}

}  // namespace moetier
