// What of a mapping is in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetier {

/// Bytes of [begin, begin + bytes) that are in memory, or 0 where mincore(2) does not answer. For a file that the
/// process neither owns nor may write, the kernel says that all of it is (can_do_mincore in mm/mincore.c): too much,
/// not too little.
uint64_t bytes_in_memory(const std::byte* begin, uint64_t bytes);

}  // namespace moetier
