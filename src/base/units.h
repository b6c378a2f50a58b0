// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace moetier {

/// Bytes in binary units with three significant digits, e.g. "13.7 MiB", "512 B".
std::string format_bytes(uint64_t bytes);

/// Seconds as "431 ms", "12.3 s" or "2 min 05 s".
std::string format_seconds(double seconds);

}  // namespace moetier
