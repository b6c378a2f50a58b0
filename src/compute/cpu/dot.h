// Dots of weight rows with activation rows, and the one table that says which function does it for which type on which
// instruction set. A new unit (AVX-512, NEON) is one more file with a DotTable and one more line in dot_table().
//
// All units follow docs/numbers.md, so they give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/cpu/activation_codes.h"
#include "compute/cpu/cpu_compute.h"
#include "quant/tensor_type.h"

namespace moetier {

/// A weight matrix as it lies in memory: row after row of blocks. No alignment is needed for quantized types; float
/// types are aligned to their size.
struct WeightMatrix {
  const std::byte* data = nullptr;
  size_t row_bytes = 0;  ///< distance between rows
  int64_t columns = 0, rows = 0;
  /// What the caller reads after the last row, if it knows: kernels fetch it ahead, and never look at it.
  const std::byte* then = nullptr;
};

/// Activation rows that a dot takes at a time.
inline constexpr int kDotTile = 32;

/// out[t][r - first] = row r of `w` . x[t], for r in [first, last) and t < n, n <= kDotTile. x[t] points to Codes32,
/// Codes256 or floats, as the type's kind says. Rows outside [first, last) may be read but not their outputs written.
using DotFn = void (*)(const WeightMatrix& w, int64_t first, int64_t last, const std::byte* const* x, float* const* out,
                       int n);

/// One unit's functions.
struct DotTable {
  DotFn f32, f16, bf16;
  DotFn q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4;
  DotFn q4_k, q5_k, q6_k;
  DotFn q2_k, q3_k, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1_s, iq1_m, iq4_xs, tq1_0, tq2_0;
  DotFn nvfp4;

  /// nullptr for a type without kernels.
  DotFn of(TensorType type) const;
};

/// `isa` must be available (Isa::automatic is resolved).
const DotTable& dot_table(Isa isa);

/// True if there are kernels for weights of that type.
bool has_dot(TensorType type);

/// The kind of activations that weights of that type are multiplied with; the type must have kernels.
ActivationKind activation_kind(TensorType type);

/// The units, and variants that are used where has_...() says so; nullptr where the compiler has none. Each takes some
/// functions from those before it: amx_dots() from avx512_dots(), the others from avx2_dots(). avx512vl_dots() is to
/// the AVX-512 unit what avxvnni_dots() is to the AVX2 unit: its functions for eight weight rows.
const DotTable& portable_dots();
const DotTable* avx2_dots();
const DotTable* avxvnni_dots();
const DotTable* avx512vl_dots();
const DotTable* avx512_dots();
const DotTable* amx_dots();

/// The table with which the AVX-512 units compute single rows and what is left of a panel: avx512vl_dots(), or what the
/// AVX2 unit takes where the processor has no AVX-512 (tests run the AVX-512 units' source there). Only where there is
/// an AVX2 unit.
const DotTable& eight_row_dots();

/// The NEON unit has a table for every 64-bit ARM processor and better ones for processors that can run them. nullptr
/// where the compiler has none or this machine cannot run it.
enum class NeonDots : uint8_t { base, dotprod, i8mm };
const DotTable* neon_dots(NeonDots variant);
/// The best one.
const DotTable* neon_dots();

}  // namespace moetier
