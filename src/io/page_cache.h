// What of a mapping is in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetier {

/// Bytes of [begin, begin + bytes) that are in memory, or 0 where mincore(2) does not answer. It answers for the page
/// cache as a whole only to a process that may write the file or owns it; to others, for what they have touched.
uint64_t bytes_in_memory(const std::byte* begin, uint64_t bytes);

}  // namespace moetier
