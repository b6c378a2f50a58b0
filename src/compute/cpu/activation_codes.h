// Activations as the quantized dots want them: docs/numbers.md, "Activation quantization". A row is cut into blocks of
// 32 columns (for the types with 32 weights in a block) or 256 (for the K types); a block has one scale and int8 codes,
// and the sums of codes that weights with an offset or a minimum need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// What a weight type wants its activations to be.
enum class ActivationKind : uint8_t { floats, blocks32, blocks256 };
inline constexpr int kActivationKinds = 3;

/// 32 columns; x is about scale * code. All four bytes aligned.
struct Codes32 {
  float scale;
  int32_t sum;  ///< of all codes
  int8_t codes[32];
};
static_assert(sizeof(Codes32) == 40);

/// 256 columns.
struct Codes256 {
  float scale;
  int16_t sums16[16];  ///< of each 16 codes
  int16_t sums32[8];   ///< of each 32 codes
  int8_t codes[256];
};
static_assert(sizeof(Codes256) == 308);

/// Columns in a block of that kind; 1 for floats.
constexpr int64_t activation_block(ActivationKind kind) {
  return kind == ActivationKind::floats ? 1 : kind == ActivationKind::blocks32 ? 32 : 256;
}
/// Bytes of a row of `columns` activations, a multiple of the block.
constexpr size_t activation_row_bytes(ActivationKind kind, int64_t columns) {
  const auto blocks = static_cast<size_t>(columns / activation_block(kind));
  return kind == ActivationKind::floats     ? blocks * sizeof(float)
         : kind == ActivationKind::blocks32 ? blocks * sizeof(Codes32)
                                            : blocks * sizeof(Codes256);
}

/// Encodes one row. A block that holds a NaN gets a NaN as its scale and codes of 0, so that whatever it is multiplied
/// with becomes a NaN. All units give the same bytes.
struct ActivationEncoders {
  void (*blocks32)(const float* x, Codes32* out, int64_t columns);
  void (*blocks256)(const float* x, Codes256* out, int64_t columns);
};

/// `isa` must be available (Isa::automatic is resolved).
const ActivationEncoders& activation_encoders(Isa isa);

/// Encodes one row of `columns` floats at `x` to `out`, as `kind` (which must not be floats) says.
void encode_activations(const ActivationEncoders& encoders, ActivationKind kind, const float* x, std::byte* out,
                        int64_t columns);

/// The units', or nullptr where the compiler has none.
const ActivationEncoders* avx2_activation_encoders();
const ActivationEncoders* neon_activation_encoders();

}  // namespace moetier
