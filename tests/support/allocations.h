// Counts what a test program allocates. A program that calls allocations() has every `operator new` counted.
#pragma once

#include <cstdint>

namespace moetier::testing_support {

/// Calls of `operator new` so far, on all threads.
int64_t allocations();

}  // namespace moetier::testing_support
