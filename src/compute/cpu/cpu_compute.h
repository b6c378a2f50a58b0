// The CPU backend of Compute.
#pragma once

#include <memory>
#include <string_view>

#include "compute/compute.h"

namespace moetier {

/// Instruction sets a CPU unit exists for. All give the same bits.
enum class Isa : uint8_t { automatic, portable, avx2, avx512, neon };

/// Weight rows of an expert that a thread takes at once, when nobody says how many.
inline constexpr int64_t kExpertChunk = 32;

struct CpuOptions {
  int threads = 0;  ///< 0 = as many as default_threads()
  Isa isa = Isa::automatic;
  int64_t expert_chunk = kExpertChunk;  ///< 0 = an equal share for each thread; changes no bit
};

/// "auto", "portable", "avx2", "avx512", "neon"; an unknown name, or one that this machine cannot run, is an error that
/// says so.
Isa parse_isa(std::string_view name);

std::unique_ptr<Compute> make_cpu_compute(const CpuOptions& options);

}  // namespace moetier
