// Which instruction sets this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// The best instruction set that a unit exists for and this machine (processor and operating system) can run.
Isa detect_isa();

/// True if `isa` is automatic or can be run here.
bool isa_available(Isa isa);

/// Every instruction set that can be run here, portable first, without automatic.
std::vector<Isa> available_isas();

/// detect_isa() for automatic, else `isa` itself; one that cannot be run here is an error that says so.
Isa resolve_isa(Isa isa);

/// The name that parse_isa() takes.
std::string_view isa_name(Isa isa);

/// What a unit that cannot be run here would need, for people, e.g. "AVX2 and F16C".
std::string_view isa_needs(Isa isa);

/// True if the unit (resolved) may run AVX2 code: what it has no functions of its own for, it takes from there.
constexpr bool isa_has_avx2(Isa isa) {
  return isa == Isa::avx2 || isa == Isa::avx512;
}

/// True if this machine can run 256-bit VNNI (AVX-VNNI), which the avx2 unit then uses.
bool has_avx_vnni();

/// True if this process may use AMX tiles of int8, which the avx512 unit then uses. Asks the system the first time.
bool has_amx_int8();

}  // namespace moetier
