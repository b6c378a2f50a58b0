// Which instruction sets this machine can run.
#pragma once

#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// The best instruction set that a unit exists for and this machine (processor and operating system) can run.
Isa detect_isa();

/// True if `isa` is automatic or can be run here.
bool isa_available(Isa isa);

/// detect_isa() for automatic, else `isa` itself; one that cannot be run here is an error that says so.
Isa resolve_isa(Isa isa);

}  // namespace moetier
