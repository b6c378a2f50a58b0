// What a unit's instructions can do at most, from registers, and how fast a core reads memory with them: the limits
// that kernels are compared with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// Loops without memory, as fast as the unit's instructions go. Each does `iterations` rounds.
struct PeakOps {
  const char* int8_instruction;  ///< for people
  int64_t int8_macs;             ///< multiply-adds of 8-bit codes in a round
  void (*int8)(int64_t iterations);
  int64_t f32_macs;  ///< multiplications with an addition each, not fused (docs/numbers.md), in a round
  void (*f32)(int64_t iterations);
  /// Reads all bytes (a multiple of 1024, aligned to 64) and adds them up in some way.
  uint64_t (*read)(const std::byte* data, size_t bytes);
};

/// Of a unit, resolved. Units without loops of their own have the portable ones, as the compiler makes them.
const PeakOps& peak_ops(Isa isa);

/// Rounds of int8 matrix tiles (AMX), which the avx512 unit has where has_amx_int8() says so; false: not built in.
inline constexpr int64_t kTileMacs = int64_t{4} * 16 * 16 * 64;
bool peak_tiles(int64_t iterations);

namespace cpu {
const PeakOps& peak_ops_portable();
const PeakOps& peak_ops_avx2();
const PeakOps& peak_ops_avx2_vnni();
const PeakOps& peak_ops_avx512();
}  // namespace cpu

}  // namespace moetier
